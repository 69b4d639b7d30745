"""Stores that workloads and costs are read from."""

from support_store_fixtures import config, either_catalog, make_call, record

__all__ = ["config", "either_catalog", "make_call", "record"]
