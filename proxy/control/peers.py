"""The other processes that serve calls into the same store, and the HTTP client to them.

Every process has a Unix socket `<store root>/proxies/<machine>/<id>.sock` that serves its whole app, and a row in the
catalog whose lease it renews. Processes with the same URL are workers of one proxy. Invariant: a process of this
machine counts as gone only when its socket refuses; one of another machine, when its lease has expired.
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

REQUEST_LIMIT_S = 10.0

logger = logging.getLogger("weir.proxy.control.peers")


class Peers:
    """This process among its peers. `join` registers it, `leave` removes it."""

    def __init__(self, catalog: Catalog, root: Path, key: str) -> None:
        self.proxy_id = new_id("proxy")
        self.writer = f"{self.proxy_id}-{os.getpid()}"
        self.url: str | None = None
        self._catalog = catalog
        self.folder = root / "proxies" / socket.gethostname()
        self._headers = {"authorization": f"Bearer {key}"}
        self._heartbeat: asyncio.Task[None] | None = None

    def listen(self) -> socket.socket:
        """The socket by which peers reach this process."""
        return listen_unix(self._path(self.proxy_id))

    async def join(self, url: str, recording: Callable[[], Recording]) -> None:
        """Register this process as one that serves `url`, and renew its lease and its state of recording."""
        self.url = url
        await self._renew(url, recording())
        self._heartbeat = asyncio.create_task(self._keep_renewed(url, recording))

    async def leave(self) -> None:
        """Remove this process from the catalog. May be called twice."""
        if self._heartbeat is None:
            return
        self._heartbeat.cancel()
        self._heartbeat = None
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
        """GET from a peer: JSON, or bytes of another type. Raises `PeerGone` or `PeerFailed`."""
        return await self._request(peer, "GET", path, None, REQUEST_LIMIT_S)

    async def post(self, peer: ProxyRow, path: str, body: Any, limit_s: float = REQUEST_LIMIT_S) -> Any:
        """POST to a peer. Raises `PeerGone` or `PeerFailed`."""
        return await self._request(peer, "POST", path, body, limit_s)

    async def _request(self, peer: ProxyRow, method: str, path: str, body: Any, limit_s: float) -> Any:
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
        """A client session to a peer and its base URL. Raises `PeerGone` where no process listens any more."""
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
                await self._reap(peer)
                raise PeerGone(f"the process {peer.writer} is gone") from error
            raise
        finally:
            os.close(folder)

    async def _reap(self, peer: ProxyRow) -> None:
        """Remove a process that died: its socket is there, and no process listens on it."""
        logger.warning("the process %s died without leaving; its row is removed", peer.writer)
        self._path(peer.proxy_id).unlink(missing_ok=True)
        with contextlib.suppress(StoreError):
            await asyncio.to_thread(forget_proxy, self._catalog, peer.proxy_id)

    async def _renew(self, url: str, recording: Recording) -> None:
        await asyncio.to_thread(
            seen_proxy, self._catalog, self.proxy_id, url=url, writer=self.writer, recording=recording
        )

    async def _keep_renewed(self, url: str, recording: Callable[[], Recording]) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                await self._renew(url, recording())
            except StoreError as error:
                logger.warning("the lease of this process was not renewed in the catalog: %s", error)

    def _is_here(self, peer: ProxyRow) -> bool:
        return self._path(peer.proxy_id).exists()

    def _path(self, proxy_id: str) -> Path:
        return self.folder / f"{proxy_id}.sock"
