"""Writes what members do to the catalog, in the order in which it happens, beside the controller's event loop.

A catalog that is out, or whose disk is full, is tried again: nothing is left out, and the run continues meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from weir.cluster.live.world import Phase
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import MemberRow, add_member, begin_phase, move_member, see, take_over
from weir.store.catalog.leases import Lease
from weir.store.clock import now_us
from weir.store.errors import StoreUnavailable


class Recorder:
    """Rows of `members` and `phases`, under the controller's lease."""

    def __init__(self, catalog: Catalog, lease: Lease, retry_s: float, say: Callable[[str], None]) -> None:
        self._catalog, self._lease, self._retry_s, self._say = catalog, lease, retry_s, say
        self._jobs: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        self._refused: Callable[[], None] | None = None  # by a catalog that is out

    def take_over(self, rows: list[MemberRow]) -> None:
        """Replace the members, and end what an earlier controller left. Raises LeaseLost."""
        take_over(self._catalog, rows, self._lease)

    def add(self, row: MemberRow) -> None:
        """A member that was not there at the start."""
        self._jobs.put_nowait(lambda: add_member(self._catalog, row, self._lease))

    def moved(self, member: str, url: str) -> None:
        """The engine of a member is at another address."""
        self._jobs.put_nowait(lambda: move_member(self._catalog, member, url, self._lease))

    def began(
        self, member: str, phase: Phase, event: str, version: int, seconds: Mapping[str, float], note: str | None
    ) -> None:
        """A member is at something else from now on."""
        at_us = now_us()
        self._jobs.put_nowait(
            lambda: begin_phase(
                self._catalog,
                member,
                phase.value,
                event,
                self._lease,
                began_us=at_us,
                weight_version=version,
                note=note,
                seconds=dict(seconds),
            )
        )

    def seen(self, names: list[str]) -> None:
        """These members answered now."""
        at_us = now_us()
        self._jobs.put_nowait(lambda: see(self._catalog, names, at_us))

    async def run(self) -> None:
        """Write until cancelled. Raises LeaseLost where another controller took over."""
        while True:
            job = self._refused or await self._jobs.get()
            try:
                await asyncio.to_thread(job)
                self._refused = None
            except StoreUnavailable as error:
                if self._refused is None:
                    self._say(f"what members do is written later: {error}")
                self._refused = job
                await asyncio.sleep(self._retry_s)

    async def flush(self) -> None:
        """Write what is left, once `run` has ended. Raises LeaseLost, or StoreUnavailable."""
        if self._refused is not None:
            await asyncio.to_thread(self._refused)
        while not self._jobs.empty():
            await asyncio.to_thread(self._jobs.get_nowait())
