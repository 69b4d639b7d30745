"""The other processes that serve calls into the same store, and the way to ask them.

Every process has a Unix socket `<store root>/proxies/<machine>/<id>.sock` that serves its whole app, and a row in the
catalog that it renews. Those with the same URL are workers of one proxy. Invariant: a process of this machine counts
as gone only when its socket refuses; one of another machine, when its lease has run out. Not here: what is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from weir.proxy.errors import PeerFailed, PeerGone
from weir.proxy.http.sockets import listen_unix
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.proxies import HEARTBEAT_S, forget_proxy, is_live, proxies, seen_proxy
from weir.store.catalog.rows import ProxyRow, Recording
from weir.store.errors import StoreError
from weir.store.records.ids import new_id

ASK_LIMIT_S = 10.0

logger = logging.getLogger("weir.proxy.control.peers")


class Peers:
    """This process among the others. `join` makes it known, `leave` takes it out."""

    def __init__(self, catalog: Catalog, root: Path, key: str) -> None:
        self.proxy_id = new_id("proxy")
        self.writer = f"{self.proxy_id}-{os.getpid()}"
        self.url: str | None = None
        self._catalog = catalog
        self.folder = root / "proxies" / socket.gethostname()
        self._headers = {"authorization": f"Bearer {key}"}
        self._beat: asyncio.Task[None] | None = None

    def listen(self) -> socket.socket:
        """The socket that the others reach this process by."""
        return listen_unix(self._path(self.proxy_id))

    async def join(self, url: str, recording: Callable[[], Recording]) -> None:
        """Make this process known as one that serves `url`, and keep saying that it lives, and how recording goes."""
        self.url = url
        await self._say(url, recording())
        self._beat = asyncio.create_task(self._keep_seen(url, recording))

    async def leave(self) -> None:
        """Be gone for the others. May be called twice."""
        if self._beat is None:
            return
        self._beat.cancel()
        self._beat = None
        self._path(self.proxy_id).unlink(missing_ok=True)
        with contextlib.suppress(StoreError):
            await asyncio.to_thread(forget_proxy, self._catalog, self.proxy_id)

    async def others(self) -> list[ProxyRow]:
        """Every other process that may be alive, of any proxy."""
        rows = await asyncio.to_thread(proxies, self._catalog)
        return [row for row in rows if row.proxy_id != self.proxy_id and (is_live(row) or self._is_here(row))]

    async def workers(self) -> list[ProxyRow]:
        """The other workers of this proxy."""
        return [row for row in await self.others() if row.url == self.url and self._is_here(row)]

    async def get(self, peer: ProxyRow, path: str) -> Any:
        """Ask a peer. Raises `PeerGone` and `PeerFailed`."""
        return await self._ask(peer, "GET", path, None, ASK_LIMIT_S)

    async def post(self, peer: ProxyRow, path: str, body: Any, limit_s: float = ASK_LIMIT_S) -> Any:
        """Tell a peer. Raises `PeerGone` and `PeerFailed`."""
        return await self._ask(peer, "POST", path, body, limit_s)

    async def _ask(self, peer: ProxyRow, method: str, path: str, body: Any, limit_s: float) -> Any:
        limits = aiohttp.ClientTimeout(total=limit_s)
        try:
            async with (
                self.session(peer, limits) as (session, base),
                session.request(method, base + path, json=body, headers=self._headers) as response,
            ):
                data = await response.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise PeerFailed(f"the process {peer.writer} did not answer {method} {path}: {error!r}") from error
        if response.status != 200:
            raise PeerFailed(f"the process {peer.writer} answered {method} {path} with {response.status}")
        return msgspec.json.decode(data) if response.content_type == "application/json" else data

    @contextlib.asynccontextmanager
    async def session(
        self, peer: ProxyRow, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
        """A connection to a peer and the base URL to use on it. Raises `PeerGone` where nobody listens any more."""
        if not self._is_here(peer):
            async with aiohttp.ClientSession(timeout=limits, trust_env=False) as session:
                yield session, peer.url
            return
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
        try:
            connector = aiohttp.UnixConnector(f"/proc/self/fd/{folder}/{peer.proxy_id}.sock", force_close=True)
            async with aiohttp.ClientSession(connector=connector, timeout=limits, trust_env=False) as session:
                yield session, "http://peer"
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, ConnectionRefusedError | FileNotFoundError):
                await self._bury(peer)
                raise PeerGone(f"the process {peer.writer} is gone") from error
            raise
        finally:
            os.close(folder)

    async def _bury(self, peer: ProxyRow) -> None:
        """Forget one that nobody will renew: its socket is there, and no process listens on it."""
        logger.warning("the process %s is gone without a word; its row is taken out", peer.writer)
        self._path(peer.proxy_id).unlink(missing_ok=True)
        with contextlib.suppress(StoreError):
            await asyncio.to_thread(forget_proxy, self._catalog, peer.proxy_id)

    async def _say(self, url: str, recording: Recording) -> None:
        await asyncio.to_thread(
            seen_proxy, self._catalog, self.proxy_id, url=url, writer=self.writer, recording=recording
        )

    async def _keep_seen(self, url: str, recording: Callable[[], Recording]) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                await self._say(url, recording())
            except StoreError as error:
                logger.warning("the catalog was not told that this process lives: %s", error)

    def _is_here(self, peer: ProxyRow) -> bool:
        return self._path(peer.proxy_id).exists()

    def _path(self, proxy_id: str) -> Path:
        return self.folder / f"{proxy_id}.sock"
