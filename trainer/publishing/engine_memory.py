"""Engines give their memory back and take it again, by SGLang's requests; the catalog knows which ones sleep.

Invariants: an engine is asked only in a pause. One that sleeps already is not asked again, and one that was started
since it was put to sleep is not asked to wake: SGLang ends itself over either request.
"""

from __future__ import annotations

import asyncio

import httpx

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import (
    HELD_S,
    AsleepEngine,
    asleep_engines,
    process_of,
    put_to_sleep,
    wake_up,
)
from weir.store.clock import now_us
from weir.trainer.http_json import Refused, Unreachable, get, post

TAGS = ("weights", "kv_cache")


async def release(
    http: httpx.AsyncClient, url: str, member: str, catalog: Catalog, *, pause: str, timeout_s: float
) -> int | None:
    """Pause an engine and have it give its memory back; the bytes, where it says so. None too where its process is
    gone, which holds none. Raises `Refused`.
    """
    try:
        return await _release(http, url, member, catalog, pause=pause, timeout_s=timeout_s)
    except Unreachable as error:
        if isinstance(error.__cause__, httpx.ConnectError) or await _is_gone(http, url):
            return None
        raise


async def _release(
    http: httpx.AsyncClient, url: str, member: str, catalog: Catalog, *, pause: str, timeout_s: float
) -> int | None:
    served = await get(http, f"{url}/model_info", timeout_s=timeout_s)
    engine = AsleepEngine(
        url=url,
        member=member,
        process=process_of(await get(http, f"{url}/server_info", timeout_s=timeout_s)),
        model_path=str(served.get("model_path")),
        weight_version=None if served.get("weight_version") is None else str(served["weight_version"]),
        held_until_us=now_us() + int(HELD_S * 1e6),
    )
    known = (await asyncio.to_thread(asleep_engines, catalog)).get(url)
    await post(http, f"{url}/pause_generation", {"mode": pause}, timeout_s=timeout_s)
    await asyncio.to_thread(put_to_sleep, catalog, engine)
    if known is not None and known.process == engine.process:
        return None
    try:
        answer = await post(http, f"{url}/release_memory_occupation", {"tags": list(TAGS)}, timeout_s=timeout_s)
    except Refused as error:
        if not isinstance(error, Unreachable):  # it says that it has its memory still
            await asyncio.to_thread(wake_up, catalog, [url])
        raise
    freed = answer.get("freed_bytes")
    return int(freed) if isinstance(freed, int) else None


async def take_again(http: httpx.AsyncClient, engine: AsleepEngine, tag: str, *, timeout_s: float) -> bool:
    """Have an engine that sleeps take memory again; False for one that was started since, which has it.

    Raises `Refused`.
    """
    info = await get(http, f"{engine.url}/server_info", timeout_s=timeout_s)
    if not engine.is_process(info):
        return False
    await post(http, f"{engine.url}/resume_memory_occupation", {"tags": [tag]}, timeout_s=timeout_s)
    return True


async def give_again(http: httpx.AsyncClient, url: str, tags: list[str], *, timeout_s: float) -> None:
    """Have an engine that woke by half give back what it took, so that it sleeps as its row says. Raises `Refused`."""
    await post(http, f"{url}/release_memory_occupation", {"tags": tags}, timeout_s=timeout_s)


async def _is_gone(http: httpx.AsyncClient, url: str) -> bool:
    """Whether nobody listens there."""
    try:
        await get(http, f"{url}/model_info")
    except Refused as error:
        return isinstance(error.__cause__, httpx.ConnectError)
    return False
