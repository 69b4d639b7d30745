"""A reader's word that it reads a generation of the store: what that consists of is not deleted meanwhile.

Invariants: the word holds until it is released or the process is gone for as long as the lease; a thread renews it, so
that a notebook may stay open for days. Where a reader is collected as garbage, the thread takes the word back: that may
happen in the middle of any transaction, and a second one in the same thread would wait for the first for ever.
Not here: what the snapshot is of (snapshot.py), and deleting (garbage.py).
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
    """One reader's snapshot; owns the copies that it is given, and the catalog unless that is the caller's own."""

    def __init__(self, catalog: Catalog, copies: Copies, *, owns_catalog: bool = True) -> None:
        self.copies = copies
        self._catalog = catalog
        self._owns_catalog = owns_catalog
        self._id = uuid4().hex
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def pin(self, connection: sa.Connection) -> None:
        """Inside a writer's transaction: what the store consists of in it is kept."""
        pin_generation(connection, self._id, f"{socket.gethostname()}:{os.getpid()}")

    def hold(self) -> None:
        """Renew it from now on."""
        self._thread = threading.Thread(target=self._renew, name="weir-snapshot", daemon=True)
        self._thread.start()
        atexit.register(self.release)

    def let_go(self) -> None:
        """The reader is gone: its thread releases. For finalisers; nothing is waited for."""
        self._ended.set()

    def release(self) -> None:
        """The reader is done. May be called twice."""
        self._ended.set()
        if self._thread is None:
            self._take_back()
        else:
            self._thread.join()

    def _renew(self) -> None:
        while not self._ended.wait(SNAPSHOT_LEASE_S / 3):
            try:
                if not renew_snapshot(self._catalog, self._id) and not self._ended.is_set():
                    logger.warning("this process stood still for too long: files that its snapshot reads may be gone")
                    break
            except StoreUnavailable as error:
                logger.warning("a snapshot could not be renewed, which is tried again: %s", error)
        self._ended.wait()
        self._take_back()
        atexit.unregister(self.release)

    def _take_back(self) -> None:
        with contextlib.suppress(StoreUnavailable):  # it expires by itself
            release_snapshot(self._catalog, self._id)
        if self._owns_catalog:
            self._catalog.close()
        self.copies.close()
