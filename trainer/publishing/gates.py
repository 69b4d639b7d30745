"""The gates of every proxy that serves the engines: those that the settings name, and those that live in the catalog.

Invariant: `close` returns when all are closed, or raises; a proxy of the catalog that does not answer is waited for
until its lease has run out, and then taken for dead. `open` may always be called. Not here: engines.
"""

from __future__ import annotations

import asyncio
import logging

import httpx

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.proxies import is_live, proxies
from weir.trainer.errors import PublishFailed
from weir.trainer.http_json import Refused, Unreachable, for_each, post

ASK_AGAIN_S = 0.5

logger = logging.getLogger("weir.trainer.publishing.gates")


class Gates:
    """The proxies of one publish."""

    def __init__(self, http: httpx.AsyncClient, named: list[str], catalog: Catalog, control_key: str | None) -> None:
        self._http = http
        self._named = [url.rstrip("/") for url in named]
        self._catalog = catalog
        self._headers = {"authorization": f"Bearer {control_key}"} if control_key else {}
        self._told: list[str] = []
        self.engine_pause = "abort"  # how engines are to be paused, once all gates are closed

    async def close(self) -> None:
        """Close all at once. Raises `PublishFailed` when one that lives did not."""
        listed = await self._live()
        self._told = [*dict.fromkeys([*self._named, *sorted(listed)])]  # also where the answer is lost: opening is safe
        failed = await for_each(self._told, lambda url: self._close(url))
        for url, why in failed.items():
            raise PublishFailed(
                f"the proxy {url} did not close its gate: {why}; check trainer.proxy_urls and trainer.control_key, "
                "then run `weir publish` again"
            )

    async def open(self, version: int | None) -> None:
        """Open all that were told to close; with the version that engines serve now, where there is a new one."""
        body = {} if version is None else {"weight_version": version}
        failed = await for_each(
            self._told, lambda url: post(self._http, f"{url}/weir/resume", body, headers=self._headers)
        )
        for url, why in failed.items():
            logger.warning(
                "the gate of %s may stay closed until its limit: %s; publish again once it answers", url, why
            )

    async def _close(self, url: str) -> None:
        waited = False
        while True:
            try:
                answer = await post(self._http, f"{url}/weir/pause", {"mode": "continue"}, headers=self._headers)
            except Unreachable as error:
                if url not in await self._live():
                    if url in self._named and not waited:
                        raise Refused(str(error)) from error
                    logger.warning("the proxy %s is left out: it does not answer, and its lease has run out", url)
                    return
                waited = True
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                # A proxy that relays cannot go on with an answer that was aborted: the engines have to keep it.
                self.engine_pause = answer.get("engine_pause", self.engine_pause)
                return

    async def _live(self) -> set[str]:
        rows = await asyncio.to_thread(proxies, self._catalog)
        return {row.url for row in rows if is_live(row)}
