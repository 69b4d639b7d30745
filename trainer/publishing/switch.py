"""Devices that engines and training take in turns: `switch(member, to="train")` and back, each measured and kept.

To train: gates close · calls are taken back · engines give their memory back · training state comes in. To roll out:
training state goes out · engines take memory, get weights, are read back and go on · gates open (publish.py). Neither
begins before the other side has let go, so that the devices never hold both. Invariant: a switch to train that fails
anywhere leaves the engines serving, with the weights that they had, unless they are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx
from rich.console import Console

from weir.kernel_eval.client import tls_context
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import (
    AsleepEngine,
    Side,
    SwitchRow,
    add_switch,
    asleep_engines,
    hold,
    let_go,
)
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.errors import StoreUnavailable
from weir.trainer.errors import PublishFailed, SwitchFailed, TrainerError
from weir.trainer.http_json import CONTROL_TIMEOUT_S, LIMITS, Refused, for_each, post
from weir.trainer.lease import publish_turn
from weir.trainer.publishing.catalog_entries import control_key, serve
from weir.trainer.publishing.engine_memory import release
from weir.trainer.publishing.gates import Gates
from weir.trainer.publishing.publish import PublishReport, publish
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.timings import RoundTimes

RENEW_S = 5.0  # between two renewals of closed gates and of the rows that say who holds the devices

logger = logging.getLogger("weir.trainer.publishing.switch")


class TrainingState(Protocol):
    """What training keeps on the devices."""

    def wake(self) -> None:
        """Bring the state in."""
        ...

    def sleep(self, needed_bytes: int | None) -> None:
        """Put the state out, as far as `needed_bytes` on the devices want it; None: all of it."""
        ...


@dataclass(kw_only=True)
class Member:
    """Engines and training state that take the same devices in turns.

    `config` names the engines, and the proxies around them, at which all calls wait while training has the devices. One
    thread uses a member.
    """

    name: str
    config: TrainerConfig
    store: StoreConfig
    catalog: Catalog
    state: TrainingState
    console: Console = field(default_factory=lambda: Console(quiet=True))
    side: Side = "rollout"
    freed_bytes: int | None = None  # by the engines, the last time
    _holding: _Holding | None = field(default=None, init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A change of hands: its seconds, by step too, and to which engines it brought which weights."""

    side: Side
    seconds: float
    steps: dict[str, float]
    published: PublishReport | None = None


def switch(member: Member, *, to: Side, folder: Path | None = None) -> Switched:
    """Give the devices to training, or back to the engines. Nothing is done where they are there already.

    Args:
        member: The engines and the training state.
        to: "train" or "rollout".
        folder: For rollout: the version that the engines get, with its entry in the catalog. Without it, the newest
            one that the catalog has as published, else what the engines had.

    Raises:
        SwitchFailed: The devices did not go to training; the engines serve.
        PublishFailed: No engine serves; training holds no memory.
    """
    if member.side == to and folder is None:
        return Switched(side=to, seconds=0.0, steps={})
    times = RoundTimes()
    began_us, published, error = now_us(), None, None
    try:
        if to == "train":
            _to_train(member, times)
        else:
            published = _to_rollout(member, folder, times)
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"
        raise
    finally:
        row = SwitchRow(
            member=member.name,
            side=to,
            began_us=began_us,
            seconds=sum(times.seconds.values()),
            steps=times.seconds,
            freed_bytes=member.freed_bytes if to == "train" else None,
            error=error,
        )
        add_switch(member.catalog, row)
    return Switched(side=to, seconds=row.seconds, steps=times.seconds, published=published)


def _to_train(member: Member, times: RoundTimes) -> None:
    member.side = "train"  # from here on, a failure brings the engines back
    try:
        asyncio.run(_clear(member, times))
        member._holding = _Holding(member, closes=True)
        with times.step("state_in"):
            member.state.wake()
    except BaseException as failure:
        _back(member, times)
        if isinstance(failure, PublishFailed | Refused | TrainerError | RuntimeError | OSError):
            raise SwitchFailed(
                f"the devices of {member.name} did not go to training: {failure}; the engines have them again, and the "
                "round stays open: the next start continues it"
            ) from failure
        raise


def _back(member: Member, times: RoundTimes) -> None:
    """After a failure: the engines serve what they had; what fails here too is logged, and left to the watch."""
    try:
        if _asleep(member):
            _to_rollout(member, None, times)
        else:
            member.side = "rollout"
            asyncio.run(_go_on(member))
    except (TrainerError, Refused) as error:
        logger.error("the engines of %s were not brought back: %s; publish again", member.name, error)


async def _go_on(member: Member) -> None:
    """No engine gave anything back: they continue, and the gates open."""
    async with _client() as http:
        await for_each(member.config.engine_urls, lambda url: post(http, f"{url}/continue_generation", {}))
    await _open_gates(member, {})


async def _open_gates(member: Member, left_out: dict[str, str]) -> None:
    async with _client() as http:
        gates = _gates(http, member)
        with contextlib.suppress(PublishFailed):
            await gates.close()  # finds them
        await gates.open(None, left_out)


async def _clear(member: Member, times: RoundTimes) -> None:
    """Engines stop and give their memory back. Raises `PublishFailed` and `Refused`; nothing is undone here."""
    config, limit_s = member.config, min(CONTROL_TIMEOUT_S, member.config.publish_timeout_s)
    async with _client() as http:
        gates = _gates(http, member)
        with times.step("gates_close"):
            await gates.close()
        pause = gates.engine_pause

        async def one(url: str) -> int | None:
            return await release(http, url, member.name, member.catalog, pause=pause, timeout_s=limit_s)

        with times.step("engines_release"):
            # To the end of all: an engine that was asked has answered before any of them is woken.
            ended = await asyncio.gather(*map(one, config.engine_urls), return_exceptions=True)
        known: list[int] = []
        for freed in ended:
            if isinstance(freed, BaseException):
                raise freed
            known += [] if freed is None else [freed]
        member.freed_bytes = sum(known) if known else member.freed_bytes


def _to_rollout(member: Member, folder: Path | None, times: RoundTimes) -> PublishReport | None:
    if member._holding is not None:
        member._holding.end()
        member._holding = None
    renewing = _Holding(member, closes=False)  # state may need long to go out
    try:
        with times.step("state_out"):
            member.state.sleep(member.freed_bytes)
        with times.step("engines_back"):
            return _bring_back(member, folder)
    except BaseException:
        with contextlib.suppress(StoreUnavailable):  # what fails before the publish leaves the gates closed
            left_out = dict.fromkeys((engine.url for engine in _asleep(member)), "it gave its memory back to training")
            asyncio.run(_open_gates(member, left_out))
        raise
    finally:
        renewing.end()
        member.side = "rollout"
        let_go(member.catalog, member.name)


def _bring_back(member: Member, folder: Path | None) -> PublishReport | None:
    """Publish to the engines that sleep; None where none does and no version is wanted. Raises `PublishFailed`."""
    config, store, catalog = member.config, member.store, member.catalog
    if folder is not None:
        return serve(folder, catalog, store, config, member.console, holder=member.name)
    if not _asleep(member):
        return None
    path, version = _served_before(member)
    with publish_turn(catalog, store, lease_s=config.lease_s):
        return publish(path, version, config, control_key(config, store), catalog, holder=member.name)


def _asleep(member: Member) -> list[AsleepEngine]:
    """The engines of a member that hold no memory."""
    return [engine for url, engine in asleep_engines(member.catalog).items() if url in member.config.engine_urls]


def _served_before(member: Member) -> tuple[Path, int]:
    """The weights that the engines are to have: the newest published ones, else those that they had."""
    published = [row for row in member.catalog.versions() if row.published_us is not None]
    newest = max(published, key=lambda row: row.published_us or 0, default=None)
    if newest is not None:
        return Path(newest.path), newest.version
    had = _asleep(member)[0]
    label = had.weight_version or "0"
    return Path(had.model_path), int(label) if label.isdecimal() else 0


class _Holding:
    """A thread that keeps gates closed, and the rows of sleeping engines held, while training has the devices.

    Without `closes` it only renews gates that are closed, so that whoever opens them meanwhile has opened them.
    """

    def __init__(self, member: Member, *, closes: bool) -> None:
        self._member = member
        self._closes = closes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"weir-holds-{member.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Returns once nothing is renewed any more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._hold())

    async def _hold(self) -> None:
        await asyncio.gather(self._hold_rows(), self._hold_gates())

    async def _hold_rows(self) -> None:
        while not await self._is_over():
            try:
                await asyncio.to_thread(hold, self._member.catalog, self._member.name)
            except StoreUnavailable as error:
                logger.warning("the devices of %s were not renewed, trying again: %s", self._member.name, error)

    async def _hold_gates(self) -> None:
        async with _client() as http:
            gates = _gates(http, self._member)
            await self._try(gates.keep)
            while not await self._is_over():
                await self._try(gates.close if self._closes else gates.keep)

    async def _try(self, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        except (StoreUnavailable, PublishFailed, Refused) as error:
            logger.warning("the gates of %s were not renewed, trying again: %s", self._member.name, error)

    async def _is_over(self) -> bool:
        return await asyncio.to_thread(self._ended.wait, RENEW_S)


def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=CONTROL_TIMEOUT_S, verify=tls_context(), limits=LIMITS)


def _gates(http: httpx.AsyncClient, member: Member) -> Gates:
    return Gates(http, member.config.proxy_urls, member.catalog, control_key(member.config, member.store))
