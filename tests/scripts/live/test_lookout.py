"""What a lookout tells a host: groups that no round takes, and engines whose calls wait for their KV cache."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from sglang_server import needs_sglang, start_sglang
from support_rounds import Judge, add_group, trainer_config
from support_router import running_router

from weir.cluster.config import ClusterConfig, ClusterMember
from weir.cluster.live.host import Host
from weir.cluster.live.world import RoundEnd
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.state import Event, Member, Settings, Tag
from weir.scripts.live import lookout as module
from weir.scripts.live.engines import Engines
from weir.scripts.live.lookout import Lookout
from weir.store.catalog.catalog import Catalog, RewardRow
from weir.store.config import StoreConfig


class World:
    """Members that do at once what they are told; the first round never ends."""

    def __init__(self) -> None:
        self.allowed = 0
        self.told: list[list[str]] = []
        self.lines: list[str] = []
        self.started, self.trains = asyncio.Event(), asyncio.Event()

    async def generate(self, member: str) -> None:
        pass

    async def leave(self, member: str) -> None:
        pass

    async def load(self, members: Sequence[str]) -> Mapping[str, str]:
        return {}

    async def train(self, members: Sequence[str], groups: Sequence[str]) -> RoundEnd:
        self.told.append(list(groups))
        self.trains.set()
        await asyncio.Event().wait()
        raise AssertionError

    def allow(self, count: int) -> None:
        self.allowed += count
        self.started.set()

    def began(self, *_: Any) -> None:
        pass

    def say(self, text: str) -> None:
        self.lines.append(text)


def reward(catalog: Catalog, group: str, sessions: int, *, alike: bool = False) -> None:
    """Give every session of a group its reward."""
    rows = [
        RewardRow(
            session_id=f"{group}-{number}",
            call_id=None,
            name="score",
            value=0 if alike else number,
            source="t",
            idempotency_key="s",
        )
        for number in range(sessions)
    ]
    catalog.add_rewards(rows)


@pytest.fixture
def catalog(store: StoreConfig) -> Any:
    """The catalog of the store."""
    opened = Catalog.open(store)
    yield opened
    opened.close()


def test_a_group_without_its_rewards_is_given_up_and_another_one_takes_its_place(
    store: StoreConfig, judge: Judge, catalog: Catalog, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_group(store, tiny_model_dir, "without", [0.0, 1.0])

    async def decide() -> World:
        world = World()
        host = Host(POLICIES["tags"], Settings(batch=1, max_staleness=1), world, weights=0, retry_s=0.0)
        trainer = trainer_config(judge, rewards={"score": {"stored": True}})
        run: Any = SimpleNamespace(settings=SimpleNamespace(store=store), config=ClusterConfig(), trainer=trainer)
        nothing: Any = None
        lookout = Lookout(host, nothing, catalog, nothing, {}, run)
        for name, tag in (("only", Tag.ROLLOUT), ("slot", Tag.TRAIN)):
            host.join(Member(name=name, tags=frozenset({tag})))
        deciding = asyncio.create_task(host.run())
        await world.started.wait()
        lookout.group_started("without")
        lookout.group_ended("without", complete=True)
        await lookout.look_at_groups()
        assert world.told == [] and world.lines == [], "its rewards may still come"
        monkeypatch.setattr(module, "UNTAKEN_S", 0.0)
        before = world.allowed
        await lookout.look_at_groups()
        assert world.lines == [f"group without will not be trained on: {module.NOT_TAKEN}"]
        assert world.allowed == before + 1
        add_group(store, tiny_model_dir, "rewarded", [0.0, 1.0])
        reward(catalog, "rewarded", 2)
        lookout.group_started("rewarded")
        lookout.group_ended("rewarded", complete=True)
        await lookout.look_at_groups()
        await world.trains.wait()
        deciding.cancel()
        await asyncio.gather(deciding, return_exceptions=True)
        return world

    world = asyncio.run(decide())
    assert world.told == [["rewarded"]]
    assert len(world.lines) == 1, "it is given up once"


def test_a_group_whose_rewards_are_all_alike_is_replaced_as_often_as_the_settings_say(
    store: StoreConfig, judge: Judge, catalog: Catalog, tiny_model_dir: Path
) -> None:
    groups = ["alike", "alike-too", "different"]
    for group in groups:
        add_group(store, tiny_model_dir, group, [0.0, 1.0])
        reward(catalog, group, 2, alike=group != "different")

    async def decide(refill: float) -> World:
        world = World()
        rules = Settings(batch=2, max_staleness=1, refill=refill)
        host = Host(POLICIES["tags"], rules, world, weights=0, retry_s=0.0)
        trainer = trainer_config(judge, rewards={"score": {"stored": True}})
        run: Any = SimpleNamespace(settings=SimpleNamespace(store=store), config=ClusterConfig(), trainer=trainer)
        nothing: Any = None
        lookout = Lookout(host, nothing, catalog, nothing, {}, run)
        for name, tag in (("only", Tag.ROLLOUT), ("slot", Tag.TRAIN)):
            host.join(Member(name=name, tags=frozenset({tag})))
        deciding = asyncio.create_task(host.run())
        await world.started.wait()
        before = world.allowed
        for group in groups:
            lookout.group_started(group)
            lookout.group_ended(group, complete=True)
        await lookout.look_at_groups()
        await world.trains.wait()
        assert world.allowed - before == host.book.num_refilled
        deciding.cancel()
        await asyncio.gather(deciding, return_exceptions=True)
        return world

    assert {*asyncio.run(decide(0.5)).told[0]} == {"alike-too", "different"}, "one of a batch of two is replaced"
    assert {*asyncio.run(decide(0.0)).told[0]} == {"alike", "alike-too"}


@needs_sglang
@pytest.mark.sglang
def test_calls_that_wait_for_an_engines_cache_make_a_round_due_and_fewer_samples_start(
    store: StoreConfig, judge: Judge, catalog: Catalog, tiny_model_dir: Path, tmp_path: Path
) -> None:
    engine = start_sglang(tiny_model_dir, folder=tmp_path, arguments=("--max-total-tokens", "600"))
    add_group(store, tiny_model_dir, "ready", [0.0, 1.0])
    reward(catalog, "ready", 2)

    async def decide(router_url: str) -> Host:
        world = World()
        rules = Settings(batch=2, max_staleness=1, when=("kv_exhausted",))
        host = Host(POLICIES["tags"], rules, world, weights=0, retry_s=0.0)
        trainer = trainer_config(judge, rewards={"score": {"stored": True}}, router_url=router_url)
        run: Any = SimpleNamespace(settings=SimpleNamespace(store=store), config=ClusterConfig(), trainer=trainer)
        recorder: Any = SimpleNamespace(seen=lambda _: None)
        engines = Engines(trainer, store, catalog, Console(file=StringIO()), None)
        members = {"only": ClusterMember(name="only", url=engine.url, tags=[Tag.ROLLOUT])}
        lookout = Lookout(host, engines, catalog, recorder, members, run)
        host.join(Member(name="slot", tags=frozenset({Tag.TRAIN})))
        await lookout.look()
        deciding = asyncio.create_task(host.run())
        await world.started.wait()
        lookout.group_started("ready")
        lookout.group_ended("ready", complete=True)
        await lookout.look_at_groups()
        await lookout.look()
        await lookout.look()
        assert world.told == [] and world.lines == [], "one of a batch of two is ready, and the engine has room"
        body = {"input_ids": list(range(40)), "sampling_params": {"max_new_tokens": 200, "ignore_eos": True}}
        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(engine.post, "/generate", body) for _ in range(6)]
            while not world.lines and not all(call.done() for call in calls):
                await lookout.look()
            await lookout.look()
            await asyncio.to_thread(lambda: [call.result() for call in calls])
        assert world.lines == ["member only has calls that wait for room in its KV cache"]
        await world.trains.wait()
        deciding.cancel()
        await asyncio.gather(deciding, return_exceptions=True)
        await engines.close()
        assert world.told == [["ready"]]
        return host

    with running_router([engine.url], tmp_path) as router:
        host = asyncio.run(decide(router.url))
    engine.stop()
    assert host.book.state.in_flight_share == pytest.approx(0.9)
    assert Event.KV_EXHAUSTED not in host.book.state.events, "the round has begun"
