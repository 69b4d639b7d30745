"""Publishes a version: gates close, engines load it, the version is read back from each, engines resume, gates open.

What can be sent before the gates close is sent then (delivery.py). Invariant: whatever fails, every engine that can
serve resumes and every closed gate opens again. An engine serves a version when it reports it itself. An engine that
fails to load it while others do stays paused, is removed from the router's rotation and is named in the report; if all
fail, all resume with the weights they have, but for one that has parts of two versions. The proxies' watch
brings such an engine to the newest version and back once it can; so does publishing, which may be repeated at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from weir.kernel_eval.client import tls_context
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import AsleepEngine, asleep_engines, wake_up
from weir.trainer.errors import HoldTooShort, PublishFailed
from weir.trainer.http_json import CONTROL_TIMEOUT_S, LIMITS, Refused, for_each, get, post
from weir.trainer.publishing.delivery import Delivery
from weir.trainer.publishing.gates import Gates
from weir.trainer.publishing.hold import LOADED, READ_BACK, Hold
from weir.trainer.publishing.router import set_rotation
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.publishing import Way
from weir.trainer.timings import RoundTimes, Span

if TYPE_CHECKING:
    from weir.trainer.publishing.rank_sender import SendingRanks

logger = logging.getLogger("weir.trainer.publishing.publish")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReport:
    """The engines that serve the version now, and those that do not."""

    version: int
    serving: list[str]
    failed: dict[str, str]  # engine → reason; it is paused, and out of the router's rotation
    seconds: float
    times: dict[str, float]  # seconds by step: engines_stage, gates_close, engines_load, engines_go_on, gates_open
    timeline: tuple[Span, ...]  # these steps, as they ran
    ways: dict[str, Way] = field(default_factory=dict)  # how the version reached each engine that serves it
    fallbacks: dict[str, str] = field(default_factory=dict)  # engine → why not the first way, with auto and delta
    bytes_sent: int = 0  # written to shared memory, given to the sockets of groups, or in differences
    num_sending_ranks: int = 0  # training processes that sent what they own; 0: this process sent everything

    @property
    def gate_closed_s(self) -> float:
        """How long calls were held, in seconds."""
        return sum(seconds for step, seconds in self.times.items() if step != "engines_stage")


def publish(
    folder: Path,
    version: int,
    config: TrainerConfig,
    control_key: str | None,
    catalog: Catalog,
    *,
    holds_calls: bool = True,
    holder: str | None = None,
    stages_ahead: bool = True,
    hold_limit_s: float | None = None,
    ranks: SendingRanks | None = None,
) -> PublishReport:
    """Load a version into every engine of the settings, behind closed gates.

    `holds_calls` is false for engines that are out of rotation: no gate closes for them, and they enter it afterwards.
    Without `stages_ahead` nothing is sent before the gates are closed. `hold_limit_s` bounds the time from when gates
    begin to close until they open: an engine that has not loaded by then fails. `ranks` hold the version's weights, and
    send them where the settings have ranks send.
    Engines that sleep take their memory first; while training has their devices, only its `holder` may ask for that.

    Raises `PublishFailed` when a gate did not close, or no engine serves the version afterwards; `HoldTooShort` where
    that is for want of time. Without engines in the
    settings nothing is done, and the report is empty.
    """
    if not config.engine_urls:
        return PublishReport(version=version, serving=[], failed={}, seconds=0.0, times={}, timeline=())
    asleep = asleep_engines(catalog)
    for url in config.engine_urls:
        if url in asleep and asleep[url].is_held and asleep[url].member != holder:
            raise PublishFailed(
                f"version {version} is published to nobody: training has the devices of {url}; once the "
                f"engine serves again, run `weir publish {folder}`"
            )
    return asyncio.run(
        _publish(
            folder.absolute(),
            version,
            config,
            control_key,
            catalog,
            asleep,
            holds_calls,
            stages_ahead,
            Hold(hold_limit_s),
            ranks,
        )
    )


async def _publish(
    folder: Path,
    version: int,
    config: TrainerConfig,
    control_key: str | None,
    catalog: Catalog,
    asleep: Mapping[str, AsleepEngine],
    holds_calls: bool,
    stages_ahead: bool,
    hold: Hold,
    ranks: SendingRanks | None,
) -> PublishReport:
    times = RoundTimes()
    async with httpx.AsyncClient(
        trust_env=False, timeout=CONTROL_TIMEOUT_S, verify=tls_context(), limits=LIMITS
    ) as http:
        gates = Gates(http, config.proxy_urls, catalog, control_key)
        delivery = Delivery(http, folder, version, config, catalog, asleep, hold, ranks)
        failed = delivery.failed
        served = too_short = False
        if stages_ahead:
            with times.step("engines_stage"):
                await delivery.stage()
            holds_calls = holds_calls and not delivery.is_lost  # then there is nothing to switch
        try:
            with times.step("gates_close"):
                if holds_calls:
                    hold.begin()
                    await _in_time(gates.close(), hold, "the gates did not close")
                    gates.check_adapter(config.publish.adapter_name if config.publish.form == "adapter" else None)
            if not stages_ahead:
                with times.step("engines_stage"):
                    await _in_time(delivery.stage(), hold, "the weights did not reach the engines")
            with times.step("engines_load"):
                await delivery.load(gates.engine_pause)
                loaded = [url for url in config.engine_urls if url not in delivery.failed]
                await asyncio.to_thread(wake_up, catalog, loaded)  # they have their memory, whatever they report
                failed = delivery.failed | await _read_back(http, loaded, version, config, hold)
                too_short = delivery.none_paused_in_time or hold.is_over(LOADED)
            served = len(failed) < len(config.engine_urls)
        finally:
            failed = dict.fromkeys(delivery.spoiled, "it has no version whole") | delivery.failed | failed
            left_out = {url: why for url, why in failed.items() if served or url in delivery.spoiled}
            with times.step("engines_go_on"):
                await delivery.let_be()
                going_on = asyncio.create_task(_go_on(http, config, left_out))
                await asyncio.wait([going_on], timeout=hold.left_s())
            with times.step("gates_open"):
                if holds_calls:
                    await gates.open(version if served else None, left_out)
            await going_on
        if not served:
            remedy = f"calls wait {hold.limit_s:g} s at most" if too_short else f"repair and `weir publish {folder}`"
            error = HoldTooShort if too_short else PublishFailed
            raise error(f"no engine serves version {version}, {_kept(delivery.spoiled)}: {_listed(failed)}; {remedy}")
        await delivery.keep_form()
    return _report(version, config, failed, times, delivery)


def _report(
    version: int, config: TrainerConfig, failed: dict[str, str], times: RoundTimes, delivery: Delivery
) -> PublishReport:
    return PublishReport(
        version=version,
        serving=[url for url in config.engine_urls if url not in failed],
        failed=failed,
        seconds=sum(times.seconds.values()),
        times=times.seconds,
        timeline=tuple(times.timeline),
        ways={url: way for url, way in delivery.ways.items() if url not in failed},
        fallbacks=delivery.fallbacks,
        bytes_sent=delivery.bytes_sent,
        num_sending_ranks=delivery.num_sending_ranks,
    )


async def _in_time(step: Awaitable[None], hold: Hold, otherwise: str) -> None:
    """Wait for a step behind closed gates. Raises `HoldTooShort`."""
    try:
        async with asyncio.timeout(hold.left_s(LOADED)):
            await step
    except TimeoutError as error:
        raise HoldTooShort(f"{otherwise} within the {hold.limit_s:g} s that calls are held") from error


async def _read_back(
    http: httpx.AsyncClient, urls: list[str], version: int, config: TrainerConfig, hold: Hold
) -> dict[str, str]:
    """Ask the engines which version they serve; returns the reasons of those that do not serve it, by engine."""

    async def read(url: str) -> None:
        limit_s = hold.within(_answer_limit_s(config), READ_BACK)
        reported = (await get(http, f"{url}/model_info", timeout_s=limit_s)).get("weight_version")
        if reported != str(version):
            raise Refused(f"it reports version {reported!r} instead of {str(version)!r}")

    return await for_each(urls, read)


async def _go_on(http: httpx.AsyncClient, config: TrainerConfig, left_out: Mapping[str, str]) -> None:
    await _resume_engines(http, [url for url in config.engine_urls if url not in left_out], config)
    await _set_rotation(http, config, out=set(left_out))


async def _resume_engines(http: httpx.AsyncClient, engines: list[str], config: TrainerConfig) -> None:
    answer_s = _answer_limit_s(config)
    failed = await for_each(engines, lambda url: post(http, f"{url}/continue_generation", {}, timeout_s=answer_s))
    for url, why in failed.items():
        logger.warning("the engine %s may still be paused: %s; publish again once it answers", url, why)


def _answer_limit_s(config: TrainerConfig) -> float:
    """The limit of requests that an engine answers at once, at most the limit of loading."""
    return min(CONTROL_TIMEOUT_S, config.publish_timeout_s)


async def _set_rotation(http: httpx.AsyncClient, config: TrainerConfig, *, out: set[str]) -> None:
    if config.router_url is None:
        return
    try:
        refused = await set_rotation(http, config.router_url, into=set(config.engine_urls) - out, out=out)
    except Refused as error:  # a router that is down routes no calls
        logger.warning("the rotation of the router %s was not updated: %s", config.router_url, error)
        return
    for url, why in refused.items():
        logger.warning("the router did not change engine %s: %s; publish again once it answers", url, why)


def _kept(spoiled: set[str]) -> str:
    named = f"; {', '.join(sorted(spoiled))} got only a part and stay paused" if spoiled else ""
    return f"all keep the weights they have{named}"


def _listed(failed: dict[str, str]) -> str:
    return "; ".join(f"{url}: {why}" for url, why in failed.items())
