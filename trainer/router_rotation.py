"""Engines in and out of the router's rotation, by the worker routes that sglang-router and smg share.

Invariant: only the named engines are touched, and what is already as wanted is left alone. A router takes changes
asynchronously: this asks, and does not wait.
"""

from __future__ import annotations

from urllib.parse import quote

import httpx


async def take_out_of_rotation(http: httpx.AsyncClient, router_url: str, engines: set[str]) -> None:
    """Remove engines from the router's workers; calls that they are serving go on."""
    for url, worker_id in (await _workers(http, router_url)).items():
        if url in engines:
            await http.delete(f"{router_url}/workers/{quote(worker_id, safe='')}")


async def put_into_rotation(http: httpx.AsyncClient, router_url: str, engines: set[str]) -> None:
    """Add engines that the router does not have."""
    for url in sorted(engines - set(await _workers(http, router_url))):
        await http.post(f"{router_url}/workers", json={"url": url})


async def _workers(http: httpx.AsyncClient, router_url: str) -> dict[str, str]:
    response = await http.get(f"{router_url}/workers")
    workers = response.json().get("workers", []) if response.status_code == 200 else []
    return {worker["url"]: str(worker.get("id") or worker["url"]) for worker in workers}
