"""A reader's pin: while it is held, nothing of its generation of the store is deleted.

Invariants: the pin holds until it is released, or its process was silent for as long as the lease; a thread renews it,
so that a notebook may stay open for days. Where a reader is garbage-collected, that thread releases the pin: a
finaliser may run in the middle of any transaction, and a second transaction in the same thread would wait for the first
for ever.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import threading
from uuid import uuid4

import sqlalchemy as sa

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.garbage import SNAPSHOT_LEASE_S, pin_generation, release_snapshot, renew_snapshot
from weir.store.errors import StoreUnavailable
from weir.store.shared.local_copies import Copies

logger = logging.getLogger("weir.store.query.pin")


class SnapshotPin:
    """One reader's pin; owns the copies that it is given, and the catalog unless it is the caller's."""

    def __init__(self, catalog: Catalog, copies: Copies, *, owns_catalog: bool = True) -> None:
        self.copies = copies
        self._catalog = catalog
        self._owns_catalog = owns_catalog
        self._id = uuid4().hex
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def pin(self, connection: sa.Connection) -> None:
        """Pin the store's contents, inside a writer's transaction."""
        pin_generation(connection, self._id, f"{socket.gethostname()}:{os.getpid()}")

    def hold(self) -> None:
        """Start to renew the pin."""
        self._thread = threading.Thread(target=self._renew, name="weir-snapshot", daemon=True)
        self._thread.start()
        atexit.register(self.release)

    def release_soon(self) -> None:
        """Have the thread release the pin, without waiting; for finalisers."""
        self._ended.set()

    def release(self) -> None:
        """Release the pin. May be called twice."""
        self._ended.set()
        if self._thread is None:
            self._take_back()
        else:
            self._thread.join()

    def _renew(self) -> None:
        while not self._ended.wait(SNAPSHOT_LEASE_S / 3):
            try:
                if not renew_snapshot(self._catalog, self._id) and not self._ended.is_set():
                    logger.warning("this process was suspended for too long: files that its snapshot reads may be gone")
                    break
            except StoreUnavailable as error:
                logger.warning("a snapshot could not be renewed and will be retried: %s", error)
        self._ended.wait()
        self._take_back()
        atexit.unregister(self.release)

    def _take_back(self) -> None:
        with contextlib.suppress(StoreUnavailable):  # it expires by itself
            release_snapshot(self._catalog, self._id)
        if self._owns_catalog:
            self._catalog.close()
        self.copies.close()
