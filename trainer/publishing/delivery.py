"""Brings a version's tensors to engines before and while the gates are closed, each by its way.

An engine that can keep weights beside those it serves gets them before the gates close (`stage`), and only switches
afterwards. One that cannot gets them once it is paused (`load`). Invariants: an engine's way changes only where the
settings say "auto", "delta" or "adapter", and then the report says from what to what, and why; an engine switches only
to what has the checksums of the version's folder, where it stages weights and can so be asked before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import httpx

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import AsleepEngine
from weir.store.version_forms import ServedAdapter, served_adapter
from weir.trainer.errors import TrainerError
from weir.trainer.http_json import CONTROL_TIMEOUT_S, Refused, done, for_each, post
from weir.trainer.publishing.engine_memory import TAGS, give_again, take_again
from weir.trainer.publishing.forms import keep_only, with_adapter, with_fp8
from weir.trainer.publishing.hold import LOADED, PAUSED, Hold
from weir.trainer.publishing.members import Member, ask_members
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.publishing import OF_SOME, Way

if TYPE_CHECKING:
    from weir.trainer.publishing.rank_sender import SendingRanks
    from weir.trainer.publishing.weight_source import WeightSource

    Sender = Callable[[httpx.AsyncClient, Sequence[Member], WeightSource, int, float], Awaitable[dict[str, str]]]


logger = logging.getLogger("weir.trainer.publishing.delivery")
ANSWER_S = 0.1  # for an engine that is alive


class Delivery:
    """One version on its way to the engines of the settings."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        folder: Path,
        version: int,
        config: TrainerConfig,
        catalog: Catalog,
        asleep: Mapping[str, AsleepEngine] = MappingProxyType({}),
        hold: Hold | None = None,
        ranks: SendingRanks | None = None,
    ) -> None:
        """`asleep`: engines that gave their memory back; `hold` bounds what is done behind closed gates.

        `ranks`: those that hold the version's weights.
        """
        self._ranks = ranks
        self.ways: dict[str, Way] = dict.fromkeys(config.engine_urls, "disk")
        self.fallbacks: dict[str, str] = {}  # engine → why it did not go the first way
        self.failed: dict[str, str] = {}  # engine → why it has not the version's weights
        self.none_paused_in_time = False  # calls may be held for too short a time to pause the engines
        self._asleep = {url: asleep[url] for url in config.engine_urls if url in asleep}
        # engines that hold parts of two versions, or none, and must not serve
        self.spoiled: set[str] = set(self._asleep)
        self.bytes_sent = 0
        self.num_sending_ranks = 0
        self._taken: dict[str, list[str]] = {}  # what engines that slept have taken again
        self._http = http
        self._folder = self._stored = folder
        self._version = version
        self._config = config
        self._catalog = catalog
        self._hold = hold or Hold()
        self._members: list[Member] = []
        self._adapter: ServedAdapter | None = None  # that engines serve beside their base
        self._left_out: asyncio.Future[dict[str, str]] | None = None  # those that failed are asked to pause

    @property
    def is_lost(self) -> bool:
        """Whether every engine has failed, and none holds a part of the version."""
        return len(self.failed) == len(self._config.engine_urls) and not self.spoiled

    async def stage(self) -> None:
        """Send the tensors to the engines that keep them beside what they serve; agents notice nothing."""
        wanted = self._config.publish.way
        limit_s = min(CONTROL_TIMEOUT_S, self._limit_s())
        if self._config.publish.form == "fp8":
            await self._quantise(limit_s)
            return
        if self._config.publish.form == "adapter":
            await self._offer_adapter(limit_s)
            return
        if wanted == "disk":
            return
        from weir.trainer.publishing.attempts import leave_old  # needs torch

        self._members, self.failed = await ask_members(
            self._http, self._config.engine_urls, limit_s, by_memory=self._config.publish.shared_memory
        )
        self.failed |= await leave_old(self._http, self._members, limit_s, self._catalog)
        self._members = [member for member in self._members if member.url not in self.failed]
        self.ways |= {member.url: member.way(wanted) for member in self._members}
        self.fallbacks |= {m.url: why for m in self._members if (why := m.unable(wanted)) is not None}
        await self._send([member for member in self._members if member.stages])

    async def _quantise(self, limit_s: float) -> None:
        """Make the folder that engines load; leaves out those that load no such weights. Raises `PublishFailed`."""
        members, self.failed = await ask_members(self._http, self._config.engine_urls, limit_s)
        why = "it does not say that it serves fp8 weights: start it on such a checkpoint with --quantization fp8"
        self.failed |= {member.url: why for member in members if not member.takes_fp8}
        self._folder = await asyncio.to_thread(with_fp8, self._folder)

    async def _offer_adapter(self, limit_s: float) -> None:
        """Make the adapter that engines load; leaves out those without its base. Raises `PublishFailed`."""
        from weir.trainer.publishing.adapter_sender import unfit_to_serve  # needs torch

        config, stored = self._config, self._folder.parent
        members, self.failed = await ask_members(self._http, config.engine_urls, limit_s)
        self._folder = await asyncio.to_thread(with_adapter, self._folder, config, config.publish.adapter_name)
        self._adapter = adapter = served_adapter(self._folder)
        assert adapter is not None
        self.ways |= dict.fromkeys(config.engine_urls, "adapter")

        async def ask(member: Member) -> None:
            if (why := await unfit_to_serve(self._http, member, adapter, stored, limit_s)) is not None:
                raise Refused(why)

        by_url = {member.url: member for member in members}
        self.failed |= await for_each(by_url, lambda url: ask(by_url[url]))

    async def load(self, pause: str) -> None:
        """Make every engine serve the version, which it is paused for; closed gates keep calls away meanwhile.

        An engine that sleeps takes all of its memory, or sleeps again afterwards.
        """
        limit_s = min(CONTROL_TIMEOUT_S, self._config.publish_timeout_s)

        async def stop(url: str) -> None:
            pause_s = self._hold.within(limit_s, PAUSED)
            await post(self._http, f"{url}/pause_generation", {"mode": pause}, timeout_s=pause_s)

        left = [url for url in self._config.engine_urls if url not in self.failed]
        if not left:  # then all go on with what they have
            return
        self._left_out = asyncio.ensure_future(for_each(list(self.failed), stop))
        unpaused = await for_each(left, stop)
        self.none_paused_in_time = self._hold.is_over(PAUSED) and len(unpaused) == len(left)
        self.failed |= unpaused
        try:
            await self._take_again("weights")
            await self._send([m for m in self._members if not m.stages and m.url not in self.failed])
            left = [url for url in self._config.engine_urls if url not in self.failed]
            self.failed |= await for_each(left, self._switch)
            await self._take_again("kv_cache")
        finally:
            await self._sleep_again(limit_s)

    async def keep_form(self) -> None:
        """Engines serve the version: whoever starts another one is to find it in this form."""
        await asyncio.to_thread(keep_only, self._folder, self._stored)

    async def let_be(self) -> None:
        """Wait no longer for engines that had failed before the others were paused; those that hang never answer."""
        if self._left_out is not None:
            await asyncio.wait([self._left_out], timeout=self._hold.within(ANSWER_S))
            self._left_out.cancel()

    async def _take_again(self, tag: str) -> None:
        """Engines that sleep take memory: for weights before they come, for keys and values once they are there."""

        async def take(url: str) -> None:
            if await take_again(self._http, self._asleep[url], tag, timeout_s=self._limit_s()):
                self._taken.setdefault(url, []).append(tag)

        self.failed |= await for_each([url for url in self._asleep if url not in self.failed], take)

    async def _sleep_again(self, limit_s: float) -> None:
        """Engines that took a part of their memory give it back: to be asked for it twice ends an engine of SGLang."""
        halfway = [url for url, tags in self._taken.items() if len(tags) < len(TAGS)]
        self.spoiled |= set(halfway)

        async def sleep(url: str) -> None:
            await give_again(self._http, url, self._taken[url], timeout_s=limit_s)

        for url, why in (await for_each(halfway, sleep)).items():
            logger.warning("the engine %s may keep a part of its memory, restart it: %s", url, why)

    async def _send(self, members: Sequence[Member]) -> None:
        """Send to all members whose way is not by disk; where that fails, the settings decide what becomes of it."""
        if all(self.ways[member.url] == "disk" for member in self._members):
            return  # torch is not imported for nothing, which takes seconds, behind closed gates too
        from weir.trainer.publishing.adapter_sender import send_adapters
        from weir.trainer.publishing.delta_sender import send_deltas
        from weir.trainer.publishing.senders import begin, send_by_ipc, send_by_memory, send_in_group  # need torch
        from weir.trainer.publishing.weight_source import WeightSource

        senders: dict[Way, Sender] = {
            "adapter": send_adapters,
            "delta": send_deltas,
            "tensor": send_by_memory,
            "ipc": send_by_ipc,
            "distributed": partial(send_in_group, catalog=self._catalog),
        }
        for way, send in senders.items():
            chosen = [member for member in members if self.ways[member.url] == way]
            if not chosen:
                continue
            limit_s = self._limit_s()
            lost = await begin(self._http, chosen, limit_s)
            left = [member for member in chosen if member.url not in lost]
            self.spoiled |= {member.url for member in left if not member.stages}
            source = await asyncio.to_thread(WeightSource, self._folder, self._config.publish.bucket_mb << 20)
            with source:
                staging = [member for member in left if member.stages]
                source.held_as = frozenset(member.dtype for member in staging)
                sent = self._sent(send, left, source, limit_s, by_ranks=way == "distributed")
                lost |= await self._in_time(sent, left)
                self.bytes_sent += source.num_sent
                lost |= await self._compare(source, [member for member in staging if member.url not in lost])
            self._go_on_without(way, {member.url: member for member in chosen}, lost)

    async def _in_time(self, sent: Awaitable[dict[str, str]], members: Sequence[Member]) -> dict[str, str]:
        """What a sender returns; all fail where its requests need longer together than calls may be held."""
        try:
            async with asyncio.timeout(self._hold.left_s(LOADED)):
                return await sent
        except TimeoutError:
            return {
                member.url: f"not sent within the {self._hold.limit_s:g} s that calls are held" for member in members
            }

    def _limit_s(self) -> float:
        """Of one request: what an engine may take to load, or what is left of that while calls are held."""
        return self._hold.within(self._config.publish_timeout_s, LOADED)

    async def _sent(
        self, send: Sender, members: list[Member], source: WeightSource, limit_s: float, *, by_ranks: bool
    ) -> dict[str, str]:
        """Send by a way, from ranks that hold the weights where there are such; returns failures, by URL."""
        if not by_ranks or not self._config.publish.by_ranks:
            return await send(self._http, members, source, self._version, limit_s)
        if self._ranks is None:
            for member in members:
                if not member.shares_memory:  # ranks would have sent to it
                    self._note(member.url, "no ranks hold it, and the folder's bytes were sent")
            return await send(self._http, members, source, self._version, limit_s)
        from weir.trainer.publishing.rank_sender import send_by_ranks
        from weir.trainer.publishing.senders import begin

        try:
            lost, self.num_sending_ranks = await send_by_ranks(
                self._http, members, source, self._version, limit_s, self._ranks, self._catalog
            )
            return lost
        except TrainerError as error:
            why = f"its ranks did not send it, and the folder's bytes were sent instead: {error}"
            logger.warning("version %d: %s", self._version, why)
            for member in members:
                self._note(member.url, why.splitlines()[0])
        lost = await begin(self._http, members, limit_s)
        left = [member for member in members if member.url not in lost]
        return lost | await send(self._http, left, source, self._version, limit_s)

    def _go_on_without(self, way: Way, members: Mapping[str, Member], lost: dict[str, str]) -> None:
        """Where a way failed, the settings decide: another one, after differences a whole one; or the engine is out."""
        if self._config.publish.way not in ("auto", *OF_SOME):
            self.failed |= lost
            return
        for url, why in lost.items():
            self._note(url, f"{way} failed: {why}")
            self.ways[url] = members[url].way("auto") if way in OF_SOME else "disk"

    def _note(self, url: str, why: str) -> None:
        """Why an engine did not get the version as the settings say; behind what was noted before."""
        before = f"{self.fallbacks[url]}; " if url in self.fallbacks else ""
        self.fallbacks[url] = before + why

    async def _compare(self, source: WeightSource, members: Sequence[Member]) -> dict[str, str]:
        """Compare what engines have staged with the checksums of the folder; returns those where it differs, by URL."""
        expected = await asyncio.to_thread(source.checksums)
        dtypes = {member.url: member.dtype for member in members}

        async def compare(url: str) -> None:
            body = {"action": "checksum", "staged": True}
            answer = await post(self._http, f"{url}/weights_checker", body, timeout_s=self._limit_s())
            (rank,) = answer["ranks"]
            wrong = [name for name, held in rank["checksums"].items() if expected[dtypes[url]].get(name) != held]
            if wrong:
                raise Refused(f"{len(wrong)} tensors arrived otherwise than they were sent, {wrong[0]} among them")

        return await for_each(dtypes, compare)

    async def _served_otherwise(self, url: str) -> str | None:
        """In what an engine that changes its weights as they arrive differs from the folder; None where it is right.

        One that seems to differ loads the folder: what its checksums do not change by that was right, in another form.
        """
        from weir.trainer.publishing.sglang_checksums import differing, has_checksums
        from weir.trainer.publishing.weight_source import WeightSource

        member = next(member for member in self._members if member.url == url)
        if not has_checksums(member):
            return None
        held = await self._checksums(url)

        def compare() -> list[str]:
            with WeightSource(self._folder, self._config.publish.bucket_mb << 20) as source:
                return differing(held, source.names, source.tensor, member.dtype)

        if not await asyncio.to_thread(compare):
            return None
        await self._load_folder(url)
        loaded = await self._checksums(url)
        wrong = [name for name in loaded if held.get(name) != loaded[name]]
        return f"{len(wrong)} tensors differ from the published ones, {wrong[0]} among them" if wrong else None

    async def _checksums(self, url: str) -> dict[str, str]:
        """Of the tensors that an engine of one rank serves, by its own names."""
        body = {"action": "checksum"}
        answer = await post(self._http, f"{url}/weights_checker", body, timeout_s=self._limit_s())
        (rank,) = answer["ranks"]
        sums: dict[str, str] = rank["checksums"]
        return sums

    async def _switch(self, url: str) -> None:
        if self._adapter is not None:
            from weir.trainer.publishing.adapter_sender import load_adapter

            self.spoiled.add(url)  # without any adapter in between
            await load_adapter(self._http, url, self._folder, self._adapter, self._version, self._limit_s())
            self.spoiled.discard(url)
            return
        if self.ways[url] == "disk":
            await self._load_folder(url)
            self.spoiled.discard(url)
            return
        await done(self._http, f"{url}/end_weight_update", {}, timeout_s=self._limit_s())
        why = await self._served_otherwise(url)
        if why is not None:
            if self._config.publish.way not in ("auto", *OF_SOME):
                raise Refused(why)
            self.fallbacks[url] = f"{self.ways[url]} failed: {why}"
            self.ways[url] = "disk"
        self.spoiled.discard(url)

    async def _load_folder(self, url: str) -> None:
        body = {"model_path": str(self._folder), "weight_version": str(self._version), "flush_cache": True}
        await done(self._http, f"{url}/update_weights_from_disk", body, timeout_s=self._limit_s())
