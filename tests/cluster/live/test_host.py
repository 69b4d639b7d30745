"""The host of real members, under worlds that fail at random: what a policy may rely on holds nevertheless."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence

import pytest

from weir.cluster.errors import RoundRefused
from weir.cluster.live.host import Host
from weir.cluster.live.world import GroupCalls, MemberFailed, Phase, RoundEnd
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.state import BOTH, Member, Settings, Tag
from weir.cluster.timeline import Overlap

BATCH, STALENESS, ROUNDS = 3, 1, 25
ROLLOUT_ONLY = frozenset({Tag.ROLLOUT})


class RandomWorld:
    """Members, agents and rounds in memory; everything takes a while, and fails now and then."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.host: Host
        self.version = 0
        self.rotation: dict[str, int] = {}  # member → its weights
        self.ready: dict[str, int] = {}  # group → version at its start, in the order of their starts
        self.ages: list[int] = []
        self.consumed: list[str] = []
        self.aborted: set[str] = set()
        self.refilled: set[str] = set()
        self.phases: list[tuple[str, Phase]] = []
        self.lines: list[str] = []
        self._groups = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def task(self, work) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def pause(self) -> None:
        for _ in range(self.draw.randrange(6)):
            await asyncio.sleep(0)

    def fails(self) -> bool:
        return self.draw.random() < 0.1

    async def generate(self, member: str) -> None:
        await self.pause()
        if self.fails():
            self.task(self.come_back(member))
            raise MemberFailed("it does not answer")
        self.rotation[member] = self.version

    async def leave(self, member: str) -> None:
        self.rotation.pop(member, None)
        await self.pause()

    async def load(self, members: Sequence[str]) -> Mapping[str, str]:
        await self.pause()
        failed = {member: "no" for member in members if self.fails()}
        self.rotation |= {member: self.version for member in members if member not in failed}
        for member in failed if len(failed) < len(members) else ():
            self.rotation.pop(member, None)
            self.task(self.come_back(member))
        return failed

    async def come_back(self, member: str) -> None:
        await self.pause()
        await asyncio.sleep(0)
        if member in self.host.book.state.members:  # its failure is not told yet
            self.task(self.come_back(member))
        else:
            self.host.join(new_member(member))

    async def train(self, members: Sequence[str], groups: Sequence[str]) -> RoundEnd:
        await self.pause()
        if self.fails():
            return RoundEnd(failure="killed")
        assert len(groups) == BATCH and set(groups) <= self.ready.keys()
        await self.pause()
        self.ages += [self.version - self.ready.pop(group) for group in groups]
        self.consumed += groups
        self.version += 1
        return RoundEnd(version=self.version, groups=groups)

    def abort(self, groups: Sequence[str]) -> None:
        self.aborted.update(groups)

    def allow(self, count: int) -> None:
        for _ in range(count):
            group, self._groups = f"g{self._groups}", self._groups + 1
            self.task(self.run_group(group))

    async def run_group(self, group: str) -> None:
        await asyncio.sleep(0)
        version = min(self.rotation.values(), default=self.version)
        self.host.group_started(group)
        await self.pause()
        if self.draw.random() < 0.05:
            self.host.group_ended(group, complete=False)
            return
        self.host.group_ended(group, complete=True)
        await self.pause()
        if self.draw.random() < 0.05:
            self.host.group_lost(group, "its calls were lost")
            return
        if self.draw.random() < 0.2 and self.host.group_without_spread(group):
            self.refilled.add(group)
            return
        self.ready[group] = version
        self.host.group_ready(group, GroupCalls(version=version))
        if self.draw.random() < 0.1:  # a product's group, started a while ago
            other, self._groups = f"g{self._groups}", self._groups + 1
            age = self.draw.randrange(STALENESS + 2)
            if self.version >= age:
                self.ready[other] = self.version - age
                self.host.group_ready(other, GroupCalls(version=self.version - age))

    def began(self, member: str, phase: Phase, event: str, seconds: Mapping[str, float], note: str | None) -> None:
        assert all(spent >= 0 for spent in seconds.values())
        self.phases.append((member, phase))

    def say(self, text: str) -> None:
        self.lines.append(text)


def new_member(name: str) -> Member:
    return Member(name=name, tags=ROLLOUT_ONLY if name == "only" else BOTH)


def run(policy: str, seed: int) -> RandomWorld:
    world = RandomWorld(seed)
    rules = Settings(
        batch=BATCH,
        max_staleness=STALENESS,
        train_members=1,
        oversample=seed % 3 / 2,
        stragglers="keep" if seed % 2 else "abort",
        refill=seed % 4 / 3,
    )

    async def all_rounds() -> None:
        world.host = Host(POLICIES[policy], rules, world, weights=0, retry_s=0.0)
        for name in ("only", "both-1", "both-2"):
            world.host.join(new_member(name))
        async with asyncio.timeout(60):
            await world.host.run(ROUNDS)

    asyncio.run(all_rounds())
    return world


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("seed", range(12))
def test_rounds_go_on_whatever_fails_and_no_group_trains_twice_or_too_old(policy: str, seed: int) -> None:
    world = run(policy, seed)
    assert world.version == ROUNDS == world.host.rounds
    assert len(world.consumed) == len(set(world.consumed)) == ROUNDS * BATCH
    assert not (world.aborted | world.refilled) & {*world.consumed}
    assert len(world.refilled) == world.host.book.num_refilled <= seed % 4 / 3 * BATCH * (ROUNDS + 1)
    assert bool(world.refilled) is bool(seed % 4)
    assert max(world.ages) <= STALENESS
    assert sum(world.host.book.staleness.values()) == ROUNDS * BATCH
    assert {phase for _, phase in world.phases} >= {Phase.TRAIN, Phase.ROLLOUT, Phase.SWITCH}


def test_what_is_beside_all_members_is_counted_once_and_in_no_phase() -> None:
    host = Host(POLICIES["tags"], Settings(batch=1), RandomWorld(0), weights=0, retry_s=0.0)
    host.join(new_member("only"))
    host.beside((), Overlap.JUDGING, 2.5)
    host.beside(["only"], Overlap.STATE, 0.5)
    assert {what: round(seconds, 6) for what, seconds in host.timeline.beside_s.items()} == {
        Overlap.JUDGING: 2.5,
        Overlap.STATE: 0.5,
    }


def test_what_a_switch_costs_is_without_the_time_in_which_the_member_took_calls() -> None:
    """Else the first load of training state would forbid lending for good: what is not done is not measured again."""
    state_s = 0.2

    class LoadsAhead(RandomWorld):
        def fails(self) -> bool:
            return False

        async def leave(self, member: str) -> None:
            began = time.monotonic()
            await asyncio.sleep(state_s)
            self.host.beside([member], Overlap.STATE, time.monotonic() - began)

    async def round_of(world: LoadsAhead) -> None:
        world.host = Host(POLICIES["tags"], Settings(batch=BATCH), world, weights=0, retry_s=0.0)
        for name in ("only", "both-1"):
            world.host.join(new_member(name))
        async with asyncio.timeout(60):
            await world.host.run(1)

    asyncio.run(round_of(world := LoadsAhead(0)))
    assert 0 < world.host.book.state.switch_s < state_s


def test_a_round_that_can_never_be_trained_ends_the_run() -> None:
    class Refusing(RandomWorld):
        async def train(self, members: Sequence[str], groups: Sequence[str]) -> RoundEnd:
            return RoundEnd(failure="trainer.groups_where is no condition", is_fatal=True)

    async def until_refused() -> None:
        world = Refusing(0)
        world.host = Host(POLICIES["tags"], Settings(batch=1), world, weights=0, retry_s=0.0)
        for name in ("only", "both-1"):
            world.host.join(new_member(name))
        async with asyncio.timeout(60):
            await world.host.run(1)

    with pytest.raises(RoundRefused, match="groups_where"):
        asyncio.run(until_refused())


def test_groups_of_others_are_trained_on_and_those_that_are_too_old_are_not() -> None:
    async def adopting() -> Host:
        world = RandomWorld(0)
        host = world.host = Host(POLICIES["tags"], Settings(batch=2, max_staleness=1), world, weights=7, retry_s=0.0)
        host.group_ready("of-a-product", GroupCalls(version=6))
        host.group_ready("old", GroupCalls(version=5))
        host.group_ready("of-a-product", GroupCalls(version=6))
        assert not host.is_foreign("of-a-product") and host.is_known("old")
        return host

    host = asyncio.run(adopting())
    assert host.book.state.ready == {6: 1}
    assert host.book.state.samples_allowed == 3
