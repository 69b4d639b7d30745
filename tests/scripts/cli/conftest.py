"""Commands over a store in a temporary folder."""

from support_store_fixtures import config, either_catalog, make_call, record

__all__ = ["config", "either_catalog", "make_call", "record"]
