"""Commands over a store in a temporary folder, with a scripted judge."""

from support_round_fixtures import judge, store

__all__ = ["judge", "store"]
