"""Adds engines to the router's rotation and removes them, over the worker routes that sglang-router and smg share.

Invariant: only the named engines are touched, and an engine that is already in the wanted state is left alone. A router
applies changes asynchronously: this asks for them and does not wait.
"""

from __future__ import annotations

import httpx

from weir.proxy.engines.router_routes import new_worker, worker_url, workers_of, workers_url
from weir.trainer.http_json import delete, for_each, get, post


async def set_rotation(http: httpx.AsyncClient, router_url: str, *, into: set[str], out: set[str]) -> dict[str, str]:
    """Add the engines in `into` that the router lacks and remove those in `out`; calls in flight continue there.

    Returns the router's refusals, by engine URL. Raises `Refused` where the router does not list its workers.
    """
    url = workers_url(router_url)
    ids = {worker.url: worker.worker_id for worker in workers_of(await get(http, url)) or []}
    leaving = {engine for engine in out if engine.rstrip("/") in ids}
    joining = {engine for engine in into if engine.rstrip("/") not in ids}
    removed = await for_each(leaving, lambda engine: delete(http, worker_url(router_url, ids[engine.rstrip("/")])))
    added = await for_each(joining, lambda engine: post(http, url, new_worker(engine)))
    return removed | added
