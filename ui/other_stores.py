"""Other stores whose curves stand beside those of the one that is shown: read in a thread while somebody looks.

Invariant: a page never waits for another store, but for the first look. A store that cannot be read keeps the
curves that it had, and says why. `revision` counts changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.errors import StoreError
from weir.ui.data.curves import Curves, curves_of_catalog

SHARE_OF_TIME = 20  # reading that took one second is followed by the next one after 20 seconds


class OtherStores:
    """The curves of other stores, as they were read last."""

    def __init__(self, stores: Sequence[StoreConfig], refresh_s: float) -> None:
        self._stores = list(stores)
        self._refresh_s = refresh_s
        self._read: dict[str, Curves] = {}
        self._unread: dict[str, str] = {}
        self._read_at, self._cost_s = 0.0, 0.0
        self._reading: asyncio.Task[None] | None = None
        self.revision = 0

    async def curves(self) -> dict[str, Any]:
        """`runs`, one for each store that could be read, and `unread`: why the others could not, by name."""
        self.read_if_old()
        if self._reading is not None and self._read_at == 0.0:
            await asyncio.shield(self._reading)
        return {"runs": list(self._read.values()), "unread": self._unread}

    def read_if_old(self) -> None:
        """Read again in the background, if what is known is old and nobody reads now."""
        wait_s = max(self._refresh_s, SHARE_OF_TIME * self._cost_s)
        is_idle = self._reading is None or self._reading.done()
        if self._stores and is_idle and time.monotonic() - self._read_at >= wait_s:
            self._reading = asyncio.create_task(self._renew())

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    async def _renew(self) -> None:
        began = time.monotonic()
        found, failed = await asyncio.to_thread(_read_all, self._stores)
        known = {str(store.root): self._read.get(str(store.root)) for store in self._stores} | found
        read = {name: run for name, run in known.items() if run is not None}
        self.revision += (read, failed) != (self._read, self._unread)
        self._read, self._unread = read, failed
        self._read_at = time.monotonic()
        self._cost_s = self._read_at - began


def _read_all(stores: Sequence[StoreConfig]) -> tuple[dict[str, Curves], dict[str, str]]:
    found, failed = {}, {}
    for store in stores:
        name = str(store.root)
        try:
            found[name] = _curves_of(store, name)
        except (StoreError, SQLAlchemyError, OSError) as error:
            failed[name] = str(error)
    return found, failed


def _curves_of(store: StoreConfig, name: str) -> Curves:
    catalog = Catalog.open(store)
    try:
        return curves_of_catalog(catalog, name)
    finally:
        catalog.close()
