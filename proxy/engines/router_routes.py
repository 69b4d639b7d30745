"""The worker routes that sglang-router and smg share: their URLs, bodies and answers.

`GET /workers` lists the engines in rotation, `POST /workers` adds one, `DELETE /workers/{id}` removes one. Pure and
light (msgspec only), because the trainer's publishing uses the same routes with an HTTP client of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One engine in a router's rotation. `worker_id` names it in the router's own routes."""

    url: str
    worker_id: str
    is_healthy: bool


def workers_url(router_url: str) -> str:
    """The URL of the list: GET reads it, POST with `new_worker` adds to it."""
    return f"{router_url.rstrip('/')}/workers"


def worker_url(router_url: str, worker_id: str) -> str:
    """The URL of one worker: DELETE removes it from rotation."""
    return f"{workers_url(router_url)}/{quote(worker_id, safe='')}"


def new_worker(engine_url: str) -> dict[str, str]:
    """The body that adds an engine to the rotation."""
    return {"url": engine_url}


def workers_of(listed: object) -> list[Worker] | None:
    """The workers in a decoded answer of GET /workers; None where the answer is no router's list."""
    workers = listed.get("workers") if isinstance(listed, dict) else None
    if not isinstance(workers, list):
        return None
    return [_worker(one) for one in workers if isinstance(one, dict) and "url" in one]


def decode_workers(body: bytes) -> list[Worker] | None:
    """The workers in the body of an answer to GET /workers; None where it is no router's list."""
    try:
        return workers_of(msgspec.json.decode(body))
    except msgspec.DecodeError:
        return None


def _worker(listed: dict[str, Any]) -> Worker:
    return Worker(
        url=str(listed["url"]).rstrip("/"),
        worker_id=str(listed.get("id") or listed["url"]),
        is_healthy=bool(listed.get("is_healthy", True)),
    )
