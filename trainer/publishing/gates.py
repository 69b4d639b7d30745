"""Closes and opens the gates of all proxies: those named in the settings, and the live ones in the catalog.

Invariant: `close` returns once all gates are closed, or raises. A proxy of the catalog that does not answer counts as
dead once its lease has expired. `open` may always be called. Closed gates have a lease, which is renewed until they are
opened: proxies bring engines back themselves, and open, once the process that closed them is gone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.proxies import is_live, proxies
from weir.trainer.errors import PublishFailed
from weir.trainer.http_json import Refused, Unreachable, for_each, post

ASK_AGAIN_S = 0.5
LEASE_S = 15.0
RENEW_S = 3.0  # between two renewals

logger = logging.getLogger("weir.trainer.publishing.gates")


class Gates:
    """The gates of one publish."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        named: list[str],
        catalog: Catalog,
        control_key: str | None,
    ) -> None:
        self._http = http
        self._named = [url.rstrip("/") for url in named]
        self._catalog = catalog
        self._headers = {"authorization": f"Bearer {control_key}"} if control_key else {}
        self._body: dict[str, Any] = {}  # of the requests that close
        self._asked: list[str] = []  # proxies that were asked to close
        self._renewing: dict[str, asyncio.Task[None]] = {}  # by proxy: one that hangs delays no other's
        self.engine_pause = "abort"  # the pause mode for engines, known once all gates are closed
        self.adapter_names: dict[str, str | None] = {}  # that calls name, by the proxy that they pass

    async def close(self, *, serve_passes: bool = False) -> None:
        """Close all gates concurrently. Raises `PublishFailed` when a live proxy did not close its gate.

        `serve_passes`: they let calls with the tag `serve` pass.
        """
        self._body = {"mode": "continue"} | ({"serve_passes": True} if serve_passes else {}) | {"lease_s": LEASE_S}
        await self.keep()
        failed = await for_each(self._asked, lambda url: self._close(url))
        for url, why in failed.items():
            raise PublishFailed(
                f"the proxy {url} did not close its gate: {why}; check trainer.proxy_urls and trainer.control_key, "
                "then run `weir publish` again"
            )

    def check_adapter(self, served: str | None) -> None:
        """Raise `PublishFailed` unless the calls of every proxy name the adapter that engines are to serve, or none."""
        for url, named in self.adapter_names.items():
            if named != served:
                wanted = "unset it" if served is None else f"set it to {served!r}, with level tokens"
                raise PublishFailed(
                    f"the proxy {url} has proxy.adapter_name = {named!r}, and publish.form and adapter_name ask "
                    f"for {served!r}, so that its calls would get other weights: {wanted}, or change [publish]"
                )

    async def keep(self) -> None:
        """Renew the leases of gates from now on, whoever closed them, until they are opened; closes none."""
        listed = await self._live()
        self._asked = [*dict.fromkeys([*self._named, *sorted(listed)])]  # also if the answer is lost
        for url in self._renewing.keys() - self._asked:
            self._renewing.pop(url).cancel()
        for url in self._asked:
            if url not in self._renewing:
                self._renewing[url] = asyncio.create_task(self._renew(url))

    async def open(self, version: int | None, left_out: dict[str, str]) -> None:
        """Open all gates that were asked to close.

        `version` is the version that engines serve now, if it is new; `left_out` names engines that stay paused, with
        reasons: the proxies' watch brings them to the newest version.
        """
        for renewing in self._renewing.values():
            renewing.cancel()
        if self._renewing:
            await asyncio.wait(self._renewing.values())
            self._renewing = {}
        body: dict[str, Any] = {} if version is None else {"weight_version": version}
        body |= {"left_out": left_out} if left_out else {}
        failed = await for_each(
            self._asked, lambda url: post(self._http, f"{url}/weir/resume", body, headers=self._headers)
        )
        for url, why in failed.items():
            logger.warning(
                "the gate of %s may stay closed until its time limit: %s; publish again once it answers", url, why
            )

    async def _renew(self, url: str) -> None:
        """Until cancelled. A renewal that comes late closes no gate that was opened."""
        body = {"renews": True, "lease_s": LEASE_S}
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await post(self._http, f"{url}/weir/pause", body, headers=self._headers, timeout_s=LEASE_S)
            except Refused as error:
                logger.warning("the gate of %s stays closed, but was not renewed: %s", url, error)

    async def _close(self, url: str) -> None:
        waited = False
        while True:
            try:
                answer = await post(self._http, f"{url}/weir/pause", self._body, headers=self._headers)
            except Unreachable as error:
                if url not in await self._live():
                    if url in self._named and not waited:
                        raise Refused(str(error)) from error
                    logger.warning("the proxy %s is left out: it does not answer, and its lease has run out", url)
                    return
                waited = True
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                # A proxy that relays cannot continue an aborted answer: engines have to keep the requests.
                self.engine_pause = answer.get("engine_pause", self.engine_pause)
                self.adapter_names[url] = answer.get("adapter_name")
                return

    async def _live(self) -> set[str]:
        rows = await asyncio.to_thread(proxies, self._catalog)
        return {row.url for row in rows if is_live(row)}
