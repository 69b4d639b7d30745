"""Fixtures of the store's tests: a store in a temporary folder, and functions that record calls."""

from support_store_fixtures import config, either_catalog, make_call, record

__all__ = ["config", "either_catalog", "make_call", "record"]
