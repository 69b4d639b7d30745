"""Groups that a round did not take: each is dropped once, the next round does not name it again, and rounds go on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from weir.cluster.live.host import Host
from weir.cluster.live.world import GroupCalls, Phase, RoundEnd
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.state import Member, Settings, Tag

ROUNDS = 6
FEWER = {"when": ("batch", "tokens"), "tokens": 1.0}  # rounds of one group or more


class World:
    """An engine and a slot apart; rounds refuse some groups, and say so or keep silent."""

    def __init__(self, rules: Settings, refused: set[str], *, says: bool = True) -> None:
        self.least = 1 if rules.takes_fewer else rules.batch
        self.refused, self.says = refused, says
        self.version, self.num_groups = 0, 0
        self.told: list[list[str]] = []
        self.taken: list[str] = []
        self.lines: list[str] = []
        self.host = Host(POLICIES["tags"], rules, self, weights=0, retry_s=0.0)
        self._tasks: set[asyncio.Task[None]] = set()

    async def generate(self, member: str) -> None:
        pass

    async def leave(self, member: str) -> None:
        pass

    async def load(self, members: Sequence[str]) -> Mapping[str, str]:
        return {}

    async def train(self, members: Sequence[str], groups: Sequence[str]) -> RoundEnd:
        assert self.ghosts() == set()
        self.told.append(list(groups))
        await asyncio.sleep(0)
        for group in groups:  # what a look-out may tell at any time
            self.host.group_lost(group, "calls of it were lost")
        await asyncio.sleep(0)
        left_out = [group for group in groups if group in self.refused] if self.says else []
        taken = [group for group in groups if group not in self.refused]
        if len(taken) < self.least:
            return RoundEnd(left_out=left_out)
        self.version += 1
        self.taken += taken
        return RoundEnd(version=self.version, groups=taken, left_out=left_out)

    def ghosts(self) -> set[int]:
        """Samples of the book that no group stands for."""
        of_groups = {*self.host._sample_of.values(), *self.host._allowed}
        return self.host.book.sample_version.keys() - of_groups

    def abort(self, groups: Sequence[str]) -> None:
        raise AssertionError("nothing is oversampled")

    def allow(self, count: int) -> None:
        for _ in range(count):
            task = asyncio.create_task(self._group(f"g{self.num_groups}"))
            self.num_groups += 1
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _group(self, group: str) -> None:
        await asyncio.sleep(0)
        self.host.group_started(group)
        self.host.group_ended(group, complete=True)
        await asyncio.sleep(0)
        self.host.group_ready(group, GroupCalls(version=self.version, tokens=10))

    def began(self, member: str, phase: Phase, event: str, seconds: Mapping[str, float], note: str | None) -> None:
        pass

    def say(self, text: str) -> None:
        self.lines.append(text)


def run(rules: Settings, refused: set[str], *, says: bool = True) -> World:
    async def all_rounds() -> World:
        world = World(rules, refused, says=says)
        for name, tag in (("only", Tag.ROLLOUT), ("slot", Tag.TRAIN)):
            world.host.join(Member(name=name, tags=frozenset({tag})))
        async with asyncio.timeout(60):
            await world.host.run(ROUNDS)
        return world

    return asyncio.run(all_rounds())


@pytest.mark.parametrize("more", [{}, FEWER], ids=["batch", "fewer"])
@pytest.mark.parametrize("refused", [{"g0"}, {"g0", "g1"}, {"g1", "g2", "g3"}], ids=len)
def test_groups_that_a_round_leaves_out_are_dropped_at_once_and_others_are_trained_on(
    refused: set[str], more: dict
) -> None:
    world = run(Settings(batch=3, max_staleness=1, **more), refused)
    assert world.version == ROUNDS
    assert world.ghosts() == set()
    told = [group for groups in world.told for group in groups]
    assert all(told.count(group) == 1 for group in refused), "what was left out is told again"
    assert len(world.taken) == len(set(world.taken)) and not refused & set(world.taken)
    for group in refused:
        assert world.lines.count(f"group {group} will not be trained on: no round takes it as it is") == 1


def test_a_group_that_no_round_takes_is_dropped_before_it_is_too_old() -> None:
    world = run(Settings(batch=3, max_staleness=1, **FEWER), {"g0"}, says=False)
    assert world.version == ROUNDS
    assert "group g0 will not be trained on: the round took others, and no later one may take it" in world.lines


def test_a_group_of_others_gets_the_place_of_one_that_is_lost() -> None:
    async def waiting() -> Host:
        host = World(Settings(batch=1, max_staleness=0), set()).host
        host.group_ready("first", GroupCalls(version=0))
        host.group_ready("second", GroupCalls(version=0))
        assert host.book.state.num_ready == 1
        host.group_lost("first", "calls of it were lost")
        return host

    assert asyncio.run(waiting())._sample_of.keys() == {"second"}
