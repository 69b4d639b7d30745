"""JSON requests to engines, proxies and routers.

Invariant: every failure is `Refused`, with a message that names the server; `Unreachable` where it did not answer. A
request ends within its time limit, also with a server that sends a byte now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpx

CONTROL_TIMEOUT_S = 30.0
# Of clients that ask engines: uvicorn closes a connection that was idle for 5 s, also while a request is on its way.
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=2.0)

# The exceptions of httpx without an answer; a port beyond 65535 comes as an `OverflowError` in an `ExceptionGroup`.
NO_ANSWER = (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OverflowError, ExceptionGroup)


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
    """The JSON object in the answer to a POST. Raises `Refused`."""
    return await _ask(http, "POST", url, timeout_s, json=body, headers=headers)


async def done(http: httpx.AsyncClient, url: str, body: dict[str, Any], *, timeout_s: float) -> None:
    """POST to an engine, whose answer says by `success` whether it was done. Raises `Refused`."""
    answer = await post(http, url, body, timeout_s=timeout_s)
    if answer.get("success") is not True:
        raise Refused(f"it refused the weights: {answer.get('message') or answer.get('error_message')}")


async def get(http: httpx.AsyncClient, url: str, *, timeout_s: float = CONTROL_TIMEOUT_S) -> dict[str, Any]:
    """The JSON object in the answer to a GET. Raises `Refused`."""
    return await _ask(http, "GET", url, timeout_s)


async def delete(http: httpx.AsyncClient, url: str, *, timeout_s: float = CONTROL_TIMEOUT_S) -> dict[str, Any]:
    """The JSON object in the answer to a DELETE. Raises `Refused`."""
    return await _ask(http, "DELETE", url, timeout_s)


async def for_each(urls: Iterable[str], act: Callable[[str], Awaitable[Any]]) -> dict[str, str]:
    """Run `act` for all URLs at once; returns the reasons of failures, by URL."""
    failed: dict[str, str] = {}

    async def guarded(url: str) -> None:
        try:
            await act(url)
        except Refused as error:
            failed[url] = str(error)

    await asyncio.gather(*(guarded(url) for url in urls))
    return failed


async def within(timeout_s: float, request: Awaitable[httpx.Response]) -> httpx.Response:
    """The whole answer within the limit; httpx bounds only each read. Raises `TimeoutError`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await request
    except TimeoutError as error:
        raise TimeoutError(f"no complete answer within {timeout_s:g} s") from error


def why_no_answer(error: BaseException) -> str:
    """An error's type and message in one line; for an exception group, those of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(f"{type(error).__name__} {error}".split())


async def _ask(http: httpx.AsyncClient, method: str, url: str, timeout_s: float, **more: Any) -> dict[str, Any]:
    try:
        response = await within(timeout_s, http.request(method, url, timeout=None, **more))
    except NO_ANSWER as error:
        raise Unreachable(f"{method} {url}: {why_no_answer(error)}") from error
    return _json(response)


def _json(response: httpx.Response) -> dict[str, Any]:
    """The answer's JSON object; {} for anything else: SGLang may answer /continue_generation in plain text."""
    if response.status_code >= 400:
        raise Refused(
            f"{response.request.method} {response.url} answered {response.status_code}: {response.text[:300]}"
        )
    try:
        value = response.json()
    except (ValueError, RecursionError):  # no JSON, or nested deeper than can be read
        return {}
    return value if isinstance(value, dict) else {}
