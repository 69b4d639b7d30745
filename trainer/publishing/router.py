"""Engines in and out of the router's rotation, by the worker routes that sglang-router and smg share.

Invariant: only the named engines are touched, and what is already as wanted is left alone. A router takes changes
asynchronously: this asks, and does not wait. The proxies watch the same routes with a client of their own
(proxy/rotation.py): parts meet in the store only, which knows no web.
"""

from __future__ import annotations

from urllib.parse import quote

import httpx

from weir.trainer.http_json import delete, for_each, get, post


async def set_rotation(http: httpx.AsyncClient, router_url: str, *, into: set[str], out: set[str]) -> dict[str, str]:
    """Add engines that the router does not have, and remove others; calls that those are serving go on.

    Returns why the router did not take a change, by engine. Raises `Refused` when it does not say what it has.
    """
    workers = await _workers(http, router_url)
    routes = f"{router_url}/workers"
    removed = await for_each(out & set(workers), lambda url: delete(http, f"{routes}/{quote(workers[url], safe='')}"))
    added = await for_each(into - set(workers), lambda url: post(http, routes, {"url": url}))
    return removed | added


async def _workers(http: httpx.AsyncClient, router_url: str) -> dict[str, str]:
    """The router's id for each engine in rotation, by URL."""
    listed = (await get(http, f"{router_url}/workers")).get("workers")
    workers = [one for one in listed if isinstance(one, dict) and "url" in one] if isinstance(listed, list) else []
    return {str(worker["url"]): str(worker.get("id") or worker["url"]) for worker in workers}
