"""Engines in and out of the router's rotation, by the worker routes that sglang-router and smg share.

Invariant: only the named engines are touched, and what is already as wanted is left alone. A router takes changes
asynchronously: this asks, and does not wait. The proxies watch the same routes with a client of their own
(proxy/rotation.py): parts meet in the store only, which knows no web.
"""

from __future__ import annotations

from urllib.parse import quote

import httpx


async def set_rotation(http: httpx.AsyncClient, router_url: str, *, into: set[str], out: set[str]) -> None:
    """Add engines that the router does not have, and remove others; calls that those are serving go on."""
    workers = await _workers(http, router_url)
    for url in sorted(out & set(workers)):
        await http.delete(f"{router_url}/workers/{quote(workers[url], safe='')}")
    for url in sorted(into - set(workers)):
        await http.post(f"{router_url}/workers", json={"url": url})


async def _workers(http: httpx.AsyncClient, router_url: str) -> dict[str, str]:
    response = await http.get(f"{router_url}/workers")
    workers = response.json().get("workers", []) if response.status_code == 200 else []
    return {worker["url"]: str(worker.get("id") or worker["url"]) for worker in workers}
