"""Calls to the servers that a publish has to do with: engines and proxies, JSON both ways.

Invariant: whatever goes wrong is `Refused`, with a text that names the server; `Unreachable` where it gave no answer.
Not here: what is asked of whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpx

CONTROL_TIMEOUT_S = 30.0


class Refused(Exception):
    """A server answered with an error, or not at all. Never leaves a publish."""


class Unreachable(Refused):
    """A server gave no answer."""


async def post(
    http: httpx.AsyncClient,
    url: str,
    body: dict[str, Any],
    *,
    headers: dict[str, str] | None = None,
    timeout_s: float = CONTROL_TIMEOUT_S,
) -> dict[str, Any]:
    """The object that a POST is answered with."""
    return await _ask(http, "POST", url, timeout_s, json=body, headers=headers)


async def get(http: httpx.AsyncClient, url: str, *, timeout_s: float = CONTROL_TIMEOUT_S) -> dict[str, Any]:
    """The object that a GET is answered with."""
    return await _ask(http, "GET", url, timeout_s)


async def delete(http: httpx.AsyncClient, url: str, *, timeout_s: float = CONTROL_TIMEOUT_S) -> dict[str, Any]:
    """The object that a DELETE is answered with."""
    return await _ask(http, "DELETE", url, timeout_s)


async def for_each(urls: Iterable[str], act: Callable[[str], Awaitable[Any]]) -> dict[str, str]:
    """Act on all at once; why it failed, by URL."""
    failed: dict[str, str] = {}

    async def guarded(url: str) -> None:
        try:
            await act(url)
        except Refused as error:
            failed[url] = str(error)

    await asyncio.gather(*(guarded(url) for url in urls))
    return failed


async def _ask(http: httpx.AsyncClient, method: str, url: str, timeout_s: float, **more: Any) -> dict[str, Any]:
    try:
        return _json(await http.request(method, url, timeout=timeout_s, **more))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unreachable(f"{method} {url}: {type(error).__name__} {error}".rstrip()) from error


def _json(response: httpx.Response) -> dict[str, Any]:
    """The answer's object; {} where it is not one (SGLang answers /continue_generation in plain text at times)."""
    if response.status_code >= 400:
        raise Refused(
            f"{response.request.method} {response.url} answered {response.status_code}: {response.text[:300]}"
        )
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
