"""Which engines the router sends calls to, by the worker routes that sglang-router and smg share; and the engines' own.

Invariant: only the named engine is touched. A router takes changes asynchronously: `take_out` waits until it is done,
`put_in` does not, because a router asks the engine first. Not here: which engine is to be in or out.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from weir.proxy.engines.router_routes import new_worker, worker_url, workers_of, workers_url

ASK_LIMIT = aiohttp.ClientTimeout(total=2.0)
TAKEN_OUT_S = 0.05


class Answer(enum.StrEnum):
    """Whether an engine answers."""

    YES = "yes"
    SILENT = "silent"  # it may be busy
    DEAD = "dead"  # nobody listens there


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What an engine said when it was asked; the version is None where it tells none."""

    answer: Answer
    version: str | None = None


class RotationFailed(Exception):
    """A router or an engine did not do as asked; the text says which and how."""


class Rotation:
    """One router, and the engines behind it."""

    def __init__(self, router_url: str) -> None:
        self.router_url = router_url.rstrip("/")
        self._session = aiohttp.ClientSession(timeout=ASK_LIMIT, trust_env=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def engines(self) -> dict[str, str]:
        """The router's id for each engine in rotation, by URL. Raises `RotationFailed`."""
        workers = workers_of(await self._ask("GET", workers_url(self.router_url)))
        return {worker.url: worker.worker_id for worker in workers or ()}

    async def take_out(self, engine: str) -> None:
        """Return when the router sends it no more calls. Raises `RotationFailed`."""
        while (worker_id := (await self.engines()).get(engine)) is not None:
            await self._ask("DELETE", worker_url(self.router_url, worker_id))
            await asyncio.sleep(TAKEN_OUT_S)

    async def put_in(self, engine: str) -> None:
        """Ask the router to send it calls. Raises `RotationFailed`."""
        await self._ask("POST", workers_url(self.router_url), new_worker(engine))

    async def probe(self, engine: str) -> Probe:
        """Whether an engine answers, and its version; the way to ask costs it no token."""
        try:
            async with self._session.get(f"{engine}/model_info") as response:
                data = await response.read()
        except aiohttp.ClientConnectorError:
            return Probe(answer=Answer.DEAD)
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return Probe(answer=Answer.SILENT)
        if response.status != 200:
            return Probe(answer=Answer.YES)
        version = _object(data).get("weight_version")
        return Probe(answer=Answer.YES, version=None if version is None else str(version))

    async def load(self, engine: str, folder: str, version: str, limit_s: float) -> None:
        """Load weights into an engine that is out of rotation, and read the version back. Raises `RotationFailed`."""
        await self._ask("POST", f"{engine}/pause_generation", {"mode": "abort"})
        body = {"model_path": folder, "weight_version": version, "flush_cache": True}
        loaded = await self._ask("POST", f"{engine}/update_weights_from_disk", body, limit_s)
        if loaded.get("success") is not True:
            raise RotationFailed(f"it refused the weights in {folder}: {loaded.get('message')}")
        reported = (await self.probe(engine)).version
        if reported != version:
            raise RotationFailed(f"it reports version {reported} after loading version {version}")
        await self._ask("POST", f"{engine}/continue_generation", {})

    async def _ask(self, method: str, url: str, body: Any = None, limit_s: float | None = None) -> dict[str, Any]:
        limits = ASK_LIMIT if limit_s is None else aiohttp.ClientTimeout(total=limit_s)
        try:
            async with self._session.request(method, url, json=body, timeout=limits) as response:
                data = await response.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise RotationFailed(f"{method} {url}: {error!r}") from error
        if response.status >= 400:
            raise RotationFailed(f"{method} {url} answered {response.status}: {data[:200].decode(errors='replace')}")
        return _object(data)


def _object(data: bytes) -> dict[str, Any]:
    """The JSON object in an answer; {} where there is none."""
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
