"""Publishing a version: gates close, engines load, the version is read back from each, gates open.

Invariant: whatever fails, every engine that can serve goes on and every gate that was closed opens again. A version
counts as served by an engine when the engine itself reports it. An engine that does not load it, while others do,
stays paused, is taken out of the router where one is named, and is named in the report; if none loads it, all go on
with the weights they have. Publishing again is always allowed and brings such an engine back. Nothing is written to
disk here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from weir.trainer.config import TrainerConfig
from weir.trainer.errors import PublishFailed
from weir.trainer.router_rotation import put_into_rotation, take_out_of_rotation

CONTROL_TIMEOUT_S = 30.0

logger = logging.getLogger("weir.trainer.publishing")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReport:
    """Who serves the version now."""

    version: int
    serving: list[str]
    failed: dict[str, str]  # engine → why; it is paused, and out of the router's rotation where one is named
    seconds: float


class _Refused(Exception):
    """A server answered, or did not; the text says how. Never leaves this module."""


def publish(folder: Path, version: int, config: TrainerConfig, control_key: str | None) -> PublishReport:
    """Bring a version to every engine of the settings. Raises `PublishFailed` when no engine serves it afterwards.

    With no engines in the settings nothing is done, and the report is empty.
    """
    if not config.engine_urls:
        return PublishReport(version=version, serving=[], failed={}, seconds=0.0)
    return asyncio.run(_publish(folder.absolute(), version, config, control_key))


async def _publish(folder: Path, version: int, config: TrainerConfig, control_key: str | None) -> PublishReport:
    started = asyncio.get_running_loop().time()
    headers = {"authorization": f"Bearer {control_key}"} if control_key else {}
    async with httpx.AsyncClient(trust_env=False, timeout=CONTROL_TIMEOUT_S) as http:
        paused: list[str] = []
        failed: dict[str, str] = {}
        served = False
        try:
            await _close_gates(http, config.proxy_urls, headers, paused)
            failed = await _load_everywhere(http, folder, version, config)
            served = len(failed) < len(config.engine_urls)
        finally:
            stay_paused = failed if served else {}
            await _continue_engines(http, [url for url in config.engine_urls if url not in stay_paused])
            await _set_rotation(http, config, out=set(stay_paused))
            await _open_gates(http, paused, headers, version if served else None)
        if not served:
            raise PublishFailed(
                f"no engine serves version {version}, all go on with what they have: {_listed(failed)}; "
                f"mend them and run `weir publish {folder}`"
            )
    return PublishReport(
        version=version,
        serving=[url for url in config.engine_urls if url not in failed],
        failed=failed,
        seconds=asyncio.get_running_loop().time() - started,
    )


async def _close_gates(http: httpx.AsyncClient, proxies: list[str], headers: dict[str, str], paused: list[str]) -> None:
    for url in proxies:
        paused.append(url)  # also when the answer is lost: opening an open gate does no harm
        try:
            await _post(http, f"{url}/weir/pause", {"mode": "continue"}, headers=headers)
        except _Refused as error:
            raise PublishFailed(
                f"the proxy {url} did not close its gate: {error}; check trainer.proxy_urls and trainer.control_key, "
                "then run `weir publish` again"
            ) from error


async def _load_everywhere(
    http: httpx.AsyncClient, folder: Path, version: int, config: TrainerConfig
) -> dict[str, str]:
    """Load the folder into every engine at once; why it failed, by engine."""

    async def load(url: str) -> None:
        await _post(http, f"{url}/pause_generation", {"mode": "abort"})
        body = {"model_path": str(folder), "weight_version": str(version), "flush_cache": True}
        answer = await _post(http, f"{url}/update_weights_from_disk", body, timeout_s=config.publish_timeout_s)
        if answer.get("success") is not True:
            raise _Refused(f"it refused the weights: {answer.get('message')}")
        reported = (await _get(http, f"{url}/model_info")).get("weight_version")
        if reported != str(version):
            raise _Refused(f"it reports version {reported!r} instead of {str(version)!r}")

    return await _for_each(config.engine_urls, load)


async def _continue_engines(http: httpx.AsyncClient, engines: list[str]) -> None:
    failed = await _for_each(engines, lambda url: _post(http, f"{url}/continue_generation", {}))
    for url, why in failed.items():
        logger.warning("the engine %s may still be paused: %s; publish again once it answers", url, why)


async def _set_rotation(http: httpx.AsyncClient, config: TrainerConfig, *, out: set[str]) -> None:
    if config.router_url is None:
        return
    try:
        await take_out_of_rotation(http, config.router_url, out)
        await put_into_rotation(http, config.router_url, set(config.engine_urls) - out)
    except httpx.TransportError as error:  # a router that is away routes to nobody
        logger.warning("the router %s was not told which engines serve: %r", config.router_url, error)


async def _open_gates(
    http: httpx.AsyncClient, proxies: list[str], headers: dict[str, str], version: int | None
) -> None:
    body = {} if version is None else {"weight_version": version}
    failed = await _for_each(proxies, lambda url: _post(http, f"{url}/weir/resume", body, headers=headers))
    for url, why in failed.items():
        logger.warning("the gate of %s may stay closed until its limit: %s; publish again once it answers", url, why)


async def _for_each(urls: Iterable[str], act: Callable[[str], Awaitable[Any]]) -> dict[str, str]:
    """Act on all at once; the failures by URL."""
    failed: dict[str, str] = {}

    async def guarded(url: str) -> None:
        try:
            await act(url)
        except _Refused as error:
            failed[url] = str(error)

    await asyncio.gather(*(guarded(url) for url in urls))
    return failed


async def _post(
    http: httpx.AsyncClient,
    url: str,
    body: dict[str, Any],
    *,
    headers: dict[str, str] | None = None,
    timeout_s: float = CONTROL_TIMEOUT_S,
) -> dict[str, Any]:
    try:
        return _json(await http.post(url, json=body, headers=headers, timeout=timeout_s))
    except httpx.HTTPError as error:
        raise _Refused(f"POST {url}: {type(error).__name__} {error}".rstrip()) from error


async def _get(http: httpx.AsyncClient, url: str) -> dict[str, Any]:
    try:
        return _json(await http.get(url))
    except httpx.HTTPError as error:
        raise _Refused(f"GET {url}: {type(error).__name__} {error}".rstrip()) from error


def _json(response: httpx.Response) -> dict[str, Any]:
    """The answer's object; {} where it is not one (SGLang answers /continue_generation in plain text at times)."""
    if response.status_code >= 400:
        raise _Refused(
            f"{response.request.method} {response.url} answered {response.status_code}: {response.text[:300]}"
        )
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _listed(failed: dict[str, str]) -> str:
    return "; ".join(f"{url}: {why}" for url, why in failed.items())
