"""The client of a router's worker routes and of the engines behind it: rotation, probes, loading of weights.

Invariant: only the named engine is affected. A router applies changes asynchronously, and may apply them in another
order: `take_out` waits until the engine is out, and `put_in` until it is listed, so that the next change finds it.
Requests are made in a thread of their own: an event loop that has a thousand calls to answer at once would take an
answer that waits for its turn for silence.
"""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from weir.proxy.engines.router_routes import new_worker, worker_url, workers_of, workers_url
from weir.store.catalog.devices.switches import AsleepEngine
from weir.store.version_forms import served_adapter

REQUEST_LIMIT_S = 2.0
CHANGE_POLL_S = 0.05
LISTED_LIMIT_S = 30.0  # a router checks an engine before it lists it


class Liveness(enum.StrEnum):
    """Whether an engine answers."""

    ALIVE = "alive"
    SILENT = "silent"  # it may be busy
    DEAD = "dead"  # no process listens there


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The result of probing an engine; the version is None where it reports none."""

    liveness: Liveness
    version: str | None = None


class RouterFailed(Exception):
    """A request to a router or an engine failed; the message names both and the reason."""


class RouterSilent(RouterFailed):
    """No answer came in time."""


class RouterClient:
    """One router, and the engines behind it."""

    def __init__(self, router_url: str) -> None:
        self.router_url = router_url.rstrip("/")
        self._requests = _Requests()

    async def close(self) -> None:
        """Close all connections."""
        await self._requests.close()

    async def engines(self) -> dict[str, str]:
        """The router's id for each engine in rotation, by URL. Raises `RouterFailed`."""
        workers = workers_of(await self._request("GET", workers_url(self.router_url)))
        return {worker.url: worker.worker_id for worker in workers or ()}

    async def take_out(self, engine: str) -> None:
        """Remove an engine from rotation; returns when the router sends it no more calls. Raises `RouterFailed`."""
        while (worker_id := (await self.engines()).get(engine)) is not None:
            await self._request("DELETE", worker_url(self.router_url, worker_id))
            await asyncio.sleep(CHANGE_POLL_S)

    async def put_in(self, engine: str, limit_s: float = LISTED_LIMIT_S) -> None:
        """Add an engine to the rotation; returns when the router lists it. Raises `RouterFailed`.

        A router that lists it only after the limit has it in rotation nevertheless.
        """
        if engine in await self.engines():
            return
        await self._request("POST", workers_url(self.router_url), new_worker(engine))
        limit = time.monotonic() + limit_s
        while engine not in await self.engines():
            if time.monotonic() > limit:
                raise RouterFailed(f"the router {self.router_url} did not list {engine} within {limit_s:g} s")
            await asyncio.sleep(CHANGE_POLL_S)

    async def go_on(self, engine: str) -> None:
        """Let an engine generate, if it is paused. Raises `RouterFailed`."""
        await self._request("POST", f"{engine}/continue_generation", {})

    async def probe(self, engine: str) -> Probe:
        """Whether an engine answers, and its version; costs the engine no token."""
        try:
            status, data = await self._requests.send("GET", f"{engine}/model_info")
        except aiohttp.ClientConnectorError:
            return Probe(liveness=Liveness.DEAD)
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return Probe(liveness=Liveness.SILENT)
        if status != 200:
            return Probe(liveness=Liveness.ALIVE)
        version = _object(data).get("weight_version")
        return Probe(liveness=Liveness.ALIVE, version=None if version is None else str(version))

    async def load(
        self,
        engine: str,
        folder: str,
        version: str,
        limit_s: float,
        *,
        asleep: AsleepEngine | None = None,
        taken: set[str] | None = None,
    ) -> None:
        """Load weights into an engine that is out of rotation, and read the version back. Raises `RouterFailed`.

        `asleep`: what is known of an engine that gave its memory back; it takes it again, but for what earlier attempts
        noted in `taken`, as this one does.
        """
        await self._request("POST", f"{engine}/pause_generation", {"mode": "abort"})
        sleeps = asleep is not None and asleep.is_process(await self._request("GET", f"{engine}/server_info"))
        taken = set() if taken is None else taken
        if sleeps:
            await self._take_memory(engine, "weights", taken, limit_s)
        body = {"model_path": folder, "weight_version": version, "flush_cache": True}
        for route, asked in await self._adapter_requests(engine, folder, version) or [
            ("/update_weights_from_disk", body)
        ]:
            loaded = await self._request("POST", f"{engine}{route}", asked, limit_s)
            if loaded.get("success") is not True:
                why = loaded.get("message") or loaded.get("error_message")
                raise RouterFailed(f"it refused the weights in {folder}: {why}")
        reported = (await self.probe(engine)).version
        if reported != version:
            raise RouterFailed(f"it reports version {reported} after loading version {version}")
        if sleeps:
            await self._take_memory(engine, "kv_cache", taken, limit_s)
        await self.go_on(engine)

    async def _adapter_requests(self, engine: str, folder: str, version: str) -> list[tuple[str, dict[str, Any]]]:
        """What an engine is asked to serve the adapter in a folder; [] where the folder holds whole weights."""
        try:
            adapter = await asyncio.to_thread(served_adapter, Path(folder))
        except (OSError, ValueError) as error:
            raise RouterFailed(f"the adapter in {folder} cannot be read: {error}") from error
        if adapter is None:
            return []
        models = await self._request("GET", f"{engine}/v1/models")
        return adapter.requests(Path(folder), version, is_loaded=adapter.is_among(models))

    async def _take_memory(self, engine: str, tag: str, taken: set[str], limit_s: float) -> None:
        """Have an engine take memory again, once: a second time ends SGLang's process."""
        if tag not in taken:
            await self._request("POST", f"{engine}/resume_memory_occupation", {"tags": [tag]}, limit_s)
            taken.add(tag)

    async def _request(self, method: str, url: str, body: Any = None, limit_s: float | None = None) -> dict[str, Any]:
        try:
            status, data = await self._requests.send(method, url, body, limit_s)
        except TimeoutError as error:
            raise RouterSilent(f"{method} {url}: {error!r}") from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise RouterFailed(f"{method} {url}: {error!r}") from error
        if status >= 400:
            raise RouterFailed(f"{method} {url} answered {status}: {data[:200].decode(errors='replace')}")
        return _object(data)


class _Requests:
    """Makes requests in a thread with an event loop, which begins with the first one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, body: Any = None, limit_s: float | None = None) -> tuple[int, bytes]:
        """The status and body of an answer. Raises what aiohttp raises."""
        if self._is_closed:
            raise RuntimeError("the client of the router is closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), name="weir-router-client", daemon=True).start()
        sending = asyncio.run_coroutine_threadsafe(
            self._send(method, url, body, limit_s or REQUEST_LIMIT_S), self._loop
        )
        return await asyncio.wrap_future(sending)

    async def close(self) -> None:
        """Close all connections, end the thread, and fail what is under way. May be called twice."""
        self._is_closed = True
        loop, self._loop = self._loop, None
        if loop is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), loop))
            loop.call_soon_threadsafe(loop.stop)

    async def _send(self, method: str, url: str, body: Any, limit_s: float) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        limit = aiohttp.ClientTimeout(total=limit_s)
        try:
            async with self._session.request(method, url, json=body, timeout=limit) as response:
                return response.status, await response.read()
        except asyncio.CancelledError as error:
            if self._is_closed:
                raise aiohttp.ClientConnectionError("the client of the router was closed meanwhile") from error
            raise

    async def _close(self) -> None:
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _object(data: bytes) -> dict[str, Any]:
    """The JSON object in an answer; {} where there is none."""
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
