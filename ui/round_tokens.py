"""The files in which rounds kept what they did with tokens, where a page finds them.

Invariants: shared storage is asked in threads of its own, so that no other page waits for it, and this one at most
`WAIT_S`. A round puts its file before it commits, so a committed one without a file has none for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cachetools import TTLCache

from weir.store.config import StoreConfig
from weir.store.errors import StoreError
from weir.store.parquet.round_tokens import find_round_tokens, round_tokens_file

WAIT_S = 2.0
THREADS = 2
FAILURE_AGE_S = 30.0  # so long storage that failed is not asked again
KEPT_FAILURES = 256
LATE = "What the round kept of these tokens is not here yet: shared storage is slow. Load this page again."


@dataclass(frozen=True, slots=True)
class Found:
    """Where the file of a round is on this machine; without one, `note` says why it is not there yet."""

    path: Path | None = None
    note: str = ""


class RoundTokens:
    """The files of committed rounds, those of other machines fetched from shared storage."""

    def __init__(self, store: StoreConfig) -> None:
        self._store = store
        self._is_shared = isinstance(store.root, str)
        self._absent: set[int] = set()
        self._failed: TTLCache[int, Found] = TTLCache(KEPT_FAILURES, FAILURE_AGE_S)
        self._under_way: dict[int, asyncio.Task[Found]] = {}
        self._free = asyncio.Semaphore(THREADS)

    async def of(self, round_id: int) -> Found:
        """The file of a committed round, or why it is not there, after `WAIT_S` at most."""
        own = round_tokens_file(self._store.folder, round_id)
        if not self._is_shared or round_id in self._absent or own.exists():
            return Found(own)
        if (failed := self._failed.get(round_id)) is not None:
            return failed
        if round_id not in self._under_way:
            self._under_way[round_id] = asyncio.create_task(self._find(round_id))
        finding = self._under_way[round_id]
        done, _ = await asyncio.wait({finding}, timeout=WAIT_S)
        if done:
            return finding.result()
        return Found(
            note="What the round kept of these tokens is not here yet: shared storage is slow. Load this page again."
        )

    async def close(self) -> None:
        """Wait for nothing that is under way."""
        for finding in list(self._under_way.values()):
            finding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await finding

    async def _find(self, round_id: int) -> Found:
        try:
            async with self._free:
                path = await _in_thread(lambda: find_round_tokens(self._store, round_id))
        except (StoreError, OSError) as error:
            self._failed[round_id] = Found(note=f"What the round kept of these tokens is not shown: {error}")
            return self._failed[round_id]
        finally:
            del self._under_way[round_id]
        if not path.exists():
            self._absent.add(round_id)
        return Found(path)


async def _in_thread(function: Callable[[], Path]) -> Path:
    """Run a function in a thread that the process does not wait for when it ends."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Path] = loop.create_future()

    def tell(result: Path | None, error: Exception | None) -> None:
        if answer.done():  # who asked has gone
            return
        if result is not None:
            answer.set_result(result)
        elif error is not None:
            answer.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = function()
        except Exception as error:  # it is raised where the answer is awaited
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, result, failure)

    threading.Thread(target=run, name="weir-ui-round-tokens", daemon=True).start()
    return await answer
