"""A store in a temporary folder and a scripted judge."""

from support_round_fixtures import judge, store

__all__ = ["judge", "store"]
