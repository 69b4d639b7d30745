"""Watches what happens by itself: engines that die, return or have old weights; groups that become ready or are lost.

Invariants: a member is lost or joins only by what it answers itself; one that was lost joins again after a pause. One
that is silent for long is killed where it can be started again, since calls that are in it would wait for it. A
group counts as ready once a round would take it. One of this run that no round takes for a while, as its rewards are
missing, is given up, so that another one starts; should a round take it later, it comes back like a group of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from weir.cluster.config import ClusterConfig, ClusterMember
from weir.cluster.due import KV_EXHAUSTED, TOKENS, uses
from weir.cluster.live.host import Host
from weir.cluster.live.world import GroupCalls
from weir.cluster.state import Role
from weir.proxy.engines.router import Liveness, Probe, RouterFailed
from weir.scripts.launch.settings import Settings
from weir.scripts.live.engines import Engines
from weir.scripts.live.members import new_member
from weir.scripts.live.processes import start_weights
from weir.scripts.live.recorder import Recorder
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.lost_calls import waiting_for_lost_calls
from weir.store.catalog.ready_groups import ready_groups
from weir.store.config import StoreConfig
from weir.store.errors import StoreUnavailable
from weir.store.reader import connect
from weir.trainer.http_json import Refused
from weir.trainer.rounds.group_selection import Choice, choose_groups
from weir.trainer.rounds.spread import spreads
from weir.trainer.settings.config import TrainerConfig

logger = logging.getLogger("weir.scripts.live.lookout")
SILENT_PROBES = 3  # without an answer, until an engine counts as dead: it may only be slow
WITHOUT_ROOM = 2  # looks in a row at an engine whose calls wait for its cache; at one they may only wait for their turn
FROZEN_S = 120.0  # of silence, until an engine that `weir train` started is killed, with the calls that wait in it
SEEN_EVERY_S = 5.0
GROUPS_EVERY_S = 1.0  # for rewards that come later, and groups that others started
UNTAKEN_S = 30.0  # until a group that no round takes is given up: its rewards may come a little later
LOOK_AGAIN_S = 60.0  # at the longest, between two looks at a group that no round takes
NOT_TAKEN = "no round takes it as it is: a reward is missing, or trainer.groups_where leaves it out"


CALLS_OF_GROUPS = """
WITH of_sessions AS (
  SELECT group_id, min(version_min) AS version, sum(num_output_tokens) AS tokens,
         max(num_prompt_tokens + num_output_tokens) AS context
  FROM calls WHERE group_id IN (SELECT unnest($1)) GROUP BY group_id, session_id)
SELECT group_id, min(version), sum(tokens), sum(context) FROM of_sessions GROUP BY group_id"""


class Run(Protocol):
    """What is set for the run."""

    settings: Settings
    config: ClusterConfig
    trainer: TrainerConfig


@dataclass(slots=True)
class Untaken:
    """A ready group that no round takes: when that was seen first, and when to look again."""

    since_s: float
    again_s: float


class Lookout:
    """Tells a host what happened to its members and groups."""

    def __init__(
        self,
        host: Host,
        engines: Engines,
        catalog: Catalog,
        recorder: Recorder,
        members: dict[str, ClusterMember],
        run: Run,
        kill: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`kill` ends the engine of a member, if it was started for it."""
        self._kill = kill
        self._host, self._engines, self._catalog, self._recorder = host, engines, catalog, recorder
        self._members, self._run = members, run
        self._rules_by_tokens = uses(host.book.state.settings, TOKENS)
        self._rules_by_cache = uses(host.book.state.settings, KV_EXHAUSTED)
        self._without_room: dict[str, int] = {}  # looks in a row, by member
        self._silent: dict[str, int] = {}
        self._heard_s: dict[str, float] = {}  # when each member that is silent answered last
        self._dead: set[str] = set()  # engines, by URL
        self._join_after: dict[str, float] = {}
        self._untaken: dict[str, Untaken] = {}
        self._spreads: dict[str, bool] = {}  # of ready groups whose rewards are known
        self._ended = asyncio.Event()
        self._seen_s = 0.0

    # Groups, as the agents' process reports them

    def group_started(self, group: str) -> None:
        """Agents started a group."""
        self._host.group_started(group)

    def group_ended(self, group: str, *, complete: bool) -> None:
        """All sessions of a group have ended."""
        self._host.group_ended(group, complete=complete)
        self._ended.set()

    def agents_died(self) -> None:
        """The agents' process was started again."""
        self._host.agents_died()

    async def watch_groups(self) -> None:
        """Tell of groups that can be claimed, or never will be, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), GROUPS_EVERY_S)
            self._ended.clear()
            with contextlib.suppress(StoreUnavailable):  # the recorder says it; groups wait for the next look
                await self.look_at_groups()

    async def look_at_groups(self) -> None:
        """Tell once of groups that can be claimed, or never will be."""
        ready, lost = await asyncio.to_thread(self._groups)
        self._untaken = {group: self._untaken[group] for group in ready if group in self._untaken}
        unknown = [group for group in ready if not self._host.is_known(group) and self._is_to_look_at(group)]
        counts = self._rules_by_tokens or any(member.kv_tokens for member in self._members.values())
        asked = [group for group in unknown if counts or self._host.is_foreign(group)]
        found = await asyncio.to_thread(calls_of_groups, self._run.settings.store, asked)
        young = [group for group in unknown if not self._is_too_old(group, found.get(group))]
        untaken = await asyncio.to_thread(self._not_taken, young, self._host.weights)
        alike = await self._without_spread(ready)
        for group in unknown:
            if group in untaken:
                self._put_off(group, untaken[group])
            elif group not in alike or not self._host.group_without_spread(group):
                self._untaken.pop(group, None)
                self._host.group_ready(group, found.get(group, GroupCalls()))
        for group in alike:
            self._host.group_without_spread(group)
        for group in lost:
            self._host.group_lost(group, "calls of it were lost")

    def _groups(self) -> tuple[list[str], list[str]]:
        trainer = self._run.trainer
        ready = ready_groups(
            self._catalog, timeout_s=trainer.group_timeout_s, min_size_ratio=trainer.min_timeout_group_size_ratio
        )
        return [row.group_id for row in ready], list(waiting_for_lost_calls(self._catalog))

    def _not_taken(self, groups: Sequence[str], newest: int) -> dict[str, str]:
        """Those of the groups that a round would not take now, with reasons."""
        if not groups:
            return {}
        choice = self._chosen(groups, newest)
        why = choice.damaged | choice.unversioned
        left_out = {*groups} - {group.row.group_id for group in choice.groups}
        return {group: why.get(group, NOT_TAKEN) for group in groups if group in left_out}

    def _chosen(self, groups: Sequence[str], newest: int) -> Choice:
        """What a round would take of these groups now."""
        staleness = math.ceil(self._host.book.state.settings.max_staleness)
        rules = {"groups_per_round": len(groups), "max_staleness": staleness, "max_buffer_size": None}
        config = self._run.trainer.model_copy(update=rules)
        return choose_groups(self._catalog, self._run.settings.store, config, parent=newest, among={*groups})

    async def _without_spread(self, ready: Sequence[str]) -> list[str]:
        """Those of the groups that no round has whose rewards are known and all alike, where others replace such."""
        self._spreads = {group: self._spreads[group] for group in ready if group in self._spreads}
        if not self._host.book.state.settings.refill:
            return []
        asked = [group for group in ready if group not in self._spreads and self._host.awaits_round(group)]
        self._spreads |= await asyncio.to_thread(self._spreads_of, asked, self._host.weights)
        return [group for group, spread in self._spreads.items() if not spread and self._host.awaits_round(group)]

    def _spreads_of(self, groups: Sequence[str], newest: int) -> dict[str, bool]:
        if not groups:
            return {}
        return spreads(self._chosen(groups, newest).groups, self._catalog, self._run.trainer)

    def _put_off(self, group: str, why: str) -> None:
        """Look again after a while, each time after a longer one; one of this run is given up in the end."""
        now = time.monotonic()
        seen = self._untaken.setdefault(group, Untaken(now, now))
        waited_s = now - seen.since_s
        seen.again_s = now + min(waited_s, LOOK_AGAIN_S)
        if waited_s >= UNTAKEN_S:
            self._host.group_lost(group, why)

    def _is_to_look_at(self, group: str) -> bool:
        return group not in self._untaken or time.monotonic() >= self._untaken[group].again_s

    def _is_too_old(self, group: str, found: GroupCalls | None) -> bool:
        """Whether the host will leave out a group of others, whatever a round would do."""
        if found is None or found.version is None or not self._host.is_foreign(group):
            return False
        return self._host.weights - found.version > self._host.book.state.settings.max_staleness

    # Engines

    async def watch_engines(self) -> None:
        """Look at every engine now and then, until cancelled."""
        while True:
            await asyncio.sleep(self._run.config.probe_s)
            await self.look()

    async def look(self) -> None:
        """Look at every member once."""
        await asyncio.gather(*(self._look_at(name) for name in self._members))
        await self._engines.keep_one(self._dead)
        if time.monotonic() - self._seen_s > SEEN_EVERY_S:
            self._seen_s = time.monotonic()
            self._recorder.seen(list(self._host.book.state.members))

    async def moved(self, member: str, url: str) -> None:
        """The engine of a member was started, or started anew, and is at this address now."""
        had = self._members[member].url
        self._lose(member, "its engine was started anew")
        self._members[member] = self._members[member].model_copy(update={"url": url})
        self._recorder.moved(member, url)
        if had is not None:
            self._dead.discard(had)
            with contextlib.suppress(RouterFailed):  # it is asked again by the proxies, which take dead ones out
                await self._engines.forget(had)

    async def _look_at(self, name: str) -> None:
        url, state = self._members[name].url, self._host.book.state
        if self._members[name].is_placed:
            return
        if url is None:
            if name not in state.members:
                self._host.join(new_member(self._members[name]))
            return
        expected = self._expected(name)
        probe = await self._engines.probe(url)
        silent = self._silent[name] = self._silent.get(name, 0) + 1 if probe.liveness is Liveness.SILENT else 0
        self._dead.discard(url)
        if not silent:
            self._heard_s.pop(name, None)
        elif time.monotonic() - self._heard_s.setdefault(name, time.monotonic()) >= FROZEN_S:
            del self._heard_s[name]  # what is started next has its own time
            self._kill(name)
        if probe.liveness is Liveness.DEAD or silent >= SILENT_PROBES:
            self._dead.add(url)
            self._lose(name, "it does not answer")
        elif probe.liveness is Liveness.SILENT:
            return
        elif name not in state.members:
            if time.monotonic() >= self._join_after.get(name, 0.0):
                self._join_after[name] = time.monotonic() + self._run.config.retry_s
                start_weights.forget(self._run.settings.store, name)
                self._host.join(new_member(self._members[name]))
        elif expected is not None and expected == self._expected(name) and _is_older(probe, expected):
            self._lose(name, f"it has version {probe.version} instead of {expected}: it was started anew")
            with contextlib.suppress(RouterFailed):
                await self._engines.router.take_out(url)
        else:
            await self._look_closer(name, url)

    async def _look_closer(self, name: str, url: str) -> None:
        state = self._host.book.state
        busy = await self._engines.is_busy(url)
        if name not in state.members:
            return
        if name in state.rotation:
            self._host.observe(name, busy=busy)
            if self._rules_by_cache or self._members[name].kv_tokens:
                await self._look_for_room(name, url)
        elif state.members[name].role is Role.TRAIN and not state.members[name].moving and busy:
            with contextlib.suppress(Refused):
                await self._engines.sweep(url)

    async def _look_for_room(self, name: str, url: str) -> None:
        """Tell of an engine whose cache has become too small for its calls; until it had room again, once."""
        lacks = await self._engines.lacks_room(url)
        if lacks is None and self._rules_by_cache and name not in self._without_room:
            logger.warning("member %s does not say whether calls wait for its KV cache: kv_exhausted never holds", name)
        looks = self._without_room[name] = self._without_room.get(name, 0) + 1 if lacks else 0
        if looks == WITHOUT_ROOM and name in self._host.book.state.rotation:
            self._host.kv_exhausted(name)

    def _lose(self, name: str, why: str) -> None:
        if name in self._host.book.state.members:
            self._join_after[name] = time.monotonic() + self._run.config.retry_s
            self._host.lose(name, why)

    def _expected(self, name: str) -> int | None:
        """The weights that a member of the rotation has; None for others, and while it loads."""
        state = self._host.book.state
        if name not in state.rotation or state.members[name].loading:
            return None
        return self._host.weights - (state.version - state.members[name].version)


def _is_older(probe: Probe, expected: int) -> bool:
    return probe.version is not None and probe.version.isdecimal() and int(probe.version) < expected


def calls_of_groups(store: StoreConfig, groups: list[str]) -> dict[str, GroupCalls]:
    """The calls of each group: their oldest version, their tokens, and the contexts of its sessions at their ends."""
    if not groups:
        return {}
    with connect(store) as db:
        rows = db.execute(CALLS_OF_GROUPS, [groups]).fetchall()
    return {
        group: GroupCalls(version=version, tokens=float(tokens or 0), kv_tokens=float(context or 0))
        for group, version, tokens, context in rows
    }
