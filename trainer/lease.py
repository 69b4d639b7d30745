"""Mutual exclusion of rounds, and of publishes, over one store: between processes and between machines.

Invariant: the holder has a lease in the catalog, and the catalog refuses a claim or commit under a lost lease. On one
machine a file lock passes on at once when its holder dies; another machine waits until the lease expires. A round also
takes the lease for publishing, as `weir publish` does: engines that loaded two versions in different orders would serve
both.
"""

from __future__ import annotations

import fcntl
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import ROUNDS, Lease, held_lease
from weir.store.config import StoreConfig
from weir.store.errors import LeaseHeld
from weir.trainer.errors import RoundBusy

PUBLISHING = "publishing"
LEASE_POLL_S = 1.0


@contextmanager
def round_lock(root: Path, *, wait: bool, name: str = "lock") -> Iterator[None]:
    """Hold this machine's lock. Raises `RoundBusy` when another process has it and `wait` is false."""
    folder = root / "rounds"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise RoundBusy(
                f"another round is running over {root}; nothing done, the next start finds it free"
            ) from error
        yield


@contextmanager
def round_turn(catalog: Catalog, store: StoreConfig, *, wait: bool, lease_s: float) -> Iterator[Lease]:
    """Hold this machine's lock and the lease for rounds. Raises `RoundBusy` when another has either and not `wait`."""
    with round_lock(store.folder, wait=wait), _lease(catalog, store, ROUNDS, lease_s, wait=wait) as lease:
        yield lease


@contextmanager
def publish_turn(catalog: Catalog, store: StoreConfig, *, lease_s: float) -> Iterator[None]:
    """Hold this machine's lock and the lease for publishing; waits for another publish."""
    with round_lock(store.folder, wait=True, name="publish.lock"), _lease(catalog, store, PUBLISHING, lease_s):
        yield


@contextmanager
def _lease(catalog: Catalog, store: StoreConfig, name: str, lease_s: float, *, wait: bool = True) -> Iterator[Lease]:
    holder = f"{socket.gethostname()}:{store.folder.absolute()}"  # within a machine, the lock excludes
    with ExitStack() as turn:
        while True:
            try:
                lease = turn.enter_context(held_lease(catalog, name, holder, lease_s))
                break
            except LeaseHeld as error:
                if not wait:
                    raise RoundBusy(f"a round is running on another machine; nothing done: {error}") from error
                time.sleep(LEASE_POLL_S)
        yield lease
