"""Versions that no round makes: their number, and how they become the newest.

Invariant: a number names one set of weights for ever and numbers only grow, so that recorded versions keep their
meaning. The caller holds the lease for rounds.
"""

from __future__ import annotations

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import RoundError
from weir.trainer.publishing.catalog_entries import enter_version
from weir.trainer.versions.object_store import share_version
from weir.trainer.versions.version_folder import Version, list_versions, set_current


def next_number(catalog: Catalog, store: StoreConfig) -> int:
    """The number of a new version; 0 is that of the first weights. Raises `RoundError` while a round is open."""
    open_round = catalog.open_round()
    if open_round is not None:
        raise RoundError(
            f"round {open_round.round_id} is open and its version is numbered already; finish it with `weir round`, "
            "then repeat this command"
        )
    taken = [row.version for row in catalog.versions()] + [v.manifest.version for v in list_versions(store.folder)]
    return max(taken, default=0) + 1


def enter_numbered(catalog: Catalog, store: StoreConfig, version: Version) -> None:
    """Make a version that was written the newest. Raises `RoundError` where another machine made the same number."""
    number = version.manifest.version
    if share_version(store, version).manifest != version.manifest:
        raise RoundError(f"another machine made version {number} meanwhile; inspect it, then repeat this command")
    set_current(store.folder, number)
    enter_version(catalog, version.path, version.manifest)
