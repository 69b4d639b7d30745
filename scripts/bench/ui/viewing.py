"""Viewers of one page, in a process of their own: `python -m weir.scripts.bench.ui.viewing URL NUMBER`.

They stand for browsers on other machines. So they run in no process that is measured or that measures, and at the
lowest priority. Prints a line once all tails are open; when stdin ends, prints how many pages were fetched, and ends.
"""

from __future__ import annotations

import asyncio
import os
import sys

import aiohttp

_NICE = 19
_ENDLESS = aiohttp.ClientTimeout(total=None)


class _Viewers:
    """Each holds /live open, and fetches the table of sessions whenever something changed."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.fetched = 0

    async def watch(self, opened: asyncio.Semaphore) -> None:
        """Follow the store until cancelled; `opened` is released once the tail is open."""
        async with self._session.get(f"{self._url}/live", timeout=_ENDLESS) as events:
            opened.release()
            async for line in events.content:
                if line.startswith(b"event: changed"):
                    async with self._session.get(f"{self._url}/sessions", timeout=_ENDLESS) as page:
                        await page.read()
                    self.fetched += 1


async def _view(url: str, number: int) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        viewers, opened = _Viewers(session, url), asyncio.Semaphore(0)
        tasks = [asyncio.create_task(viewers.watch(opened)) for _ in range(number)]
        for _ in tasks:
            await opened.acquire()
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print(viewers.fetched, flush=True)


if __name__ == "__main__":
    os.nice(_NICE)
    asyncio.run(_view(sys.argv[1], int(sys.argv[2])))
