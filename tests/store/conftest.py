"""A store in a temporary folder, and records as agents would leave them."""

from support_store_fixtures import config, either_catalog, make_call, record

__all__ = ["config", "either_catalog", "make_call", "record"]
