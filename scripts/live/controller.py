"""The controller behind `weir train`: engines, a training slot and agents, under a policy of weir.cluster.

Invariants: one controller decides over a store, the one that holds the lease; whatever is killed, the next start finds
in the catalog which rounds were made, which one is open and which groups are ready, and continues from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from weir.cluster.live.host import Host
from weir.cluster.live.world import Phase, RoundEnd
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.timeline import BUSY, Overlap
from weir.scripts.launch.errors import CommandError
from weir.scripts.launch.resolve import trainer_config
from weir.scripts.launch.settings import Settings
from weir.scripts.live.engines import Engines
from weir.scripts.live.lookout import Lookout
from weir.scripts.live.members import check_members, members_of, row_of, rules_of
from weir.scripts.live.metrics import ClusterMetrics
from weir.scripts.live.placed_engines import PlacedEngines
from weir.scripts.live.processes.choice import processes_of
from weir.scripts.live.recorder import Recorder
from weir.scripts.live.rollouts import RolloutOptions, Rollouts
from weir.scripts.live.roster import Roster
from weir.scripts.live.slot import Slot
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import CLUSTER
from weir.store.catalog.leases import Lease, held_lease
from weir.store.errors import LeaseHeld, LeaseLost, StoreUnavailable
from weir.store.log.writer import lock_file
from weir.trainer.versions.object_store import fetch_newest
from weir.trainer.versions.version_folder import current_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run did.

    Attributes:
        rounds: How many were trained.
        version: The newest version.
        shares: Of each member's time, by activity.
        all_shares: Of all members' time, by activity.
        overlapped_s: Seconds of judging, of loading state and of spreading weights beside the members' work.
        staleness: How many groups were so many versions old when they were trained on.
        refilled: Groups that were replaced, because their rewards are all alike.
        aborted: Groups that were ended, because enough others were ready.
    """

    rounds: int
    version: int
    shares: Mapping[str, Mapping[str, float]]
    all_shares: Mapping[str, float]
    overlapped_s: Mapping[str, float]
    staleness: Mapping[int, int]
    refilled: int = 0
    aborted: int = 0

    @property
    def idle_share(self) -> float:
        """Of all members' time."""
        return sum(share for cause, share in self.all_shares.items() if cause not in BUSY)


class Controller:
    """The world of a host, and the way from the settings to a running host."""

    def __init__(
        self,
        settings: Settings,
        config_path: Path | None,
        rollouts: RolloutOptions,
        console: Console,
        on_version: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`on_version` hears of each version. Raises `UsageError` where the settings do not fit together."""
        self.settings, self.config_path, self.console = settings, config_path, console
        self._on_version = on_version
        self.config = settings.cluster
        self.trainer = trainer_config(settings)
        self.members = members_of(self.config, self.trainer)
        self.rules = rules_of(self.config, self.trainer)
        check_members(self.members, self.config, self.trainer, settings.proxy.level)
        urls = [member.url for member in self.members.values() if member.url is not None]
        self.trainer = self.trainer.model_copy(update={"engine_urls": urls})
        self.catalog = Catalog.open(settings.store)
        logs = settings.store.folder / "logs"
        self.processes = processes_of(settings, config_path, self.members)
        self.placed = PlacedEngines(self.processes, self.members, self.say)
        self.slot = Slot(config_path, self.rules, logs / "training-slot.log", self._on_step, self.processes)
        self.rollouts = Rollouts(rollouts, logs / "agents.log", self.config.retry_s, self.say)
        self.metrics = ClusterMetrics(self.config.metrics_port)
        self.host: Host
        self.engines: Engines
        self._recorder: Recorder
        self._noted_refilled = 0  # groups that the metrics of rounds have

    async def run(self, rounds: int | None) -> Report:
        """Decide until so many rounds are trained, or until cancelled. Raises `CommandError` where another decides."""
        try:
            self.processes.open()
            with self._only_one() as lease:
                self._recorder = Recorder(self.catalog, lease, self.config.retry_s, self.say)
                self._recorder.take_over([row_of(member) for member in self.members.values()])
                self.engines = Engines(
                    self.trainer,
                    self.settings.store,
                    self.catalog,
                    self.console,
                    self.config.max_hold_s,
                    serves=self.config.serve_share > 0,
                    stages_ahead=self.config.weights_overlap,
                )
                try:
                    weights = await self._finished()
                    policy = POLICIES[self.config.policy]
                    self.host = Host(policy, self.rules, self, weights=weights, retry_s=self.config.retry_s)
                    await self._decide(rounds)
                finally:
                    await self.engines.close()
        finally:
            await self.slot.close()
            await self.placed.close()
            await self.processes.close()
            self.metrics.close()
            self.catalog.close()
        timeline = self.host.timeline
        return Report(
            rounds=self.host.rounds,
            version=self.host.weights,
            shares={name: {str(k): v for k, v in of.items()} for name, of in timeline.member_shares().items()},
            all_shares={str(what): share for what, share in timeline.shares().items()},
            overlapped_s={what.value: timeline.beside_s[what] for what in Overlap},
            staleness=dict(self.host.book.staleness),
            refilled=self.host.book.num_refilled,
            aborted=self.host.book.num_aborted,
        )

    async def _finished(self) -> int:
        """The newest version, once what a killed process left of a round is done."""
        fetch_newest(self.settings.store)
        while True:
            newest = self._newest()
            end = await self.slot.train(newest, list(self.members), self._cores(self.members), ())
            if end.failure is None:
                return self._newest()
            if end.is_fatal:
                raise CommandError(end.failure)
            self.say(f"the round that was left open did not end: {end.failure}")
            await asyncio.sleep(self.config.retry_s)

    async def _decide(self, rounds: int | None) -> None:
        lookout = Lookout(
            self.host, self.engines, self.catalog, self._recorder, self.members, self, kill=self.placed.kill
        )
        await self.rollouts.start()
        await lookout.look()
        await lookout.look_at_groups()  # before any group is started: those that are there take their places first
        roster = Roster(self.config_path, self.members, self._recorder, self.say)
        watches = [lookout.watch_engines(), lookout.watch_groups(), self.engines.watch_gates(), roster.watch()]
        beside = [self._recorder.run(), *watches, self.placed.watch(lookout), self.rollouts.run(lookout)]
        try:
            await _first_ended(self.host.run(rounds), *beside)
        finally:
            await self.rollouts.close()
            await self._return_engines()
            self.host.end()
            with contextlib.suppress(LeaseLost, StoreUnavailable):  # what takes the lease over ends the phases
                await self._recorder.flush()

    async def _return_engines(self) -> None:
        """Leave every engine in rotation, for those who go on with `weir round`; those that end here leave it."""
        for name, member in self.members.items():
            with contextlib.suppress(Exception):  # whatever it is, the others are to return
                if name in self.placed.names and member.url is not None:
                    await self.engines.forget(member.url)
                elif member.url is not None and name in self.host.book.state.members:
                    await self.engines.enter(member.url)

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[Lease]:
        folder = self.settings.store.folder
        (folder / "rounds").mkdir(parents=True, exist_ok=True)
        holder = f"{socket.gethostname()}:{folder.absolute()}"  # within a machine, the file lock excludes
        try:
            lock = lock_file(folder / "rounds" / "cluster.lock")
            try:
                with held_lease(self.catalog, CLUSTER, holder, self.config.lease_s) as lease:
                    yield lease
            finally:
                os.close(lock)
        except (BlockingIOError, LeaseHeld) as error:
            raise CommandError(f"another `weir train` decides over {folder}: stop it first ({error})") from error

    def _newest(self) -> int:
        found = current_version(self.settings.store.folder)
        return found.manifest.version if found is not None else 0

    def _cores(self, names: Sequence[str] | Mapping[str, Any]) -> list[int]:
        return sorted({core for name in names for core in self.members[name].cores})

    def _on_step(self, step: str, seconds: float) -> None:
        if not hasattr(self, "host"):
            return
        if step in ("claimed", "judged"):
            self.host.training_step(judging=step == "claimed")
        elif step == "judged_ahead":
            self.host.beside((), Overlap.JUDGING, seconds)

    # What the host asks for

    async def generate(self, member: str) -> None:
        """Bring a member into the rotation, with the newest weights. Raises `MemberFailed`."""
        await self.engines.enter(self._url(member))

    async def leave(self, member: str) -> None:
        """Take a member out of the rotation, once what it trains with is loaded. Raises `MemberFailed`."""
        if self.config.state_overlaps:
            began = time.monotonic()
            await self.slot.load_ahead()
            self.host.beside([member], Overlap.STATE, time.monotonic() - began)
        if self.members[member].url is not None:
            await self.engines.leave(self._url(member))

    async def load(self, members: Sequence[str]) -> Mapping[str, str]:
        """Load the newest weights behind closed gates; returns why members failed, by name."""
        names = {self._url(member): member for member in members}
        loaded = await self.engines.load(list(names))
        self.host.beside(members, Overlap.WEIGHTS, loaded.staged_s)
        return {names[url]: why for url, why in loaded.failed.items()}

    async def train(self, members: Sequence[str], groups: Sequence[str]) -> RoundEnd:
        """Run a round of these groups in the slot, on the devices of these members."""
        refilled = self.host.book.num_refilled
        more = refilled - self._noted_refilled
        end = await self.slot.train(self.host.weights, members, self._cores(members), groups, more)
        if end.version is not None:
            self._noted_refilled = refilled
            self._on_version(end.version)
            self.say(f"version {end.version} is trained; {len(end.groups)} groups, on {', '.join(members)}")
        return end

    def allow(self, count: int) -> None:
        """Let agents start as many more groups."""
        self.rollouts.allow(count)

    def abort(self, groups: Sequence[str]) -> None:
        """End the sessions of groups that run."""
        self.rollouts.abort(groups)

    def began(self, member: str, phase: Phase, event: str, seconds: Mapping[str, float], note: str | None) -> None:
        """A member is at something else from now on."""
        self._recorder.began(member, phase, event, self.host.weights if hasattr(self, "host") else 0, seconds, note)
        self.metrics.began(member, phase.value, seconds)

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, soft_wrap=True)

    def _url(self, member: str) -> str:
        url = self.members[member].url
        assert url is not None
        return url


async def _first_ended(*work: Coroutine[Any, Any, None]) -> None:
    """Run all until the first ends, and raise what it raised; the others are cancelled."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
