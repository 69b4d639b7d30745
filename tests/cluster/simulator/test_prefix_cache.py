"""Blocks of prompts that an engine's KV cache holds, against counts by hand."""

from __future__ import annotations

import itertools

import pytest

from weir.cluster.costs.roofline import StepCost
from weir.cluster.description import Costs, Description, Device, MemberGroup
from weir.cluster.simulator.engine import Engine, Request
from weir.cluster.simulator.prefix_cache import BLOCK, PrefixCache
from weir.cluster.simulator.simulation import Simulation
from weir.cluster.suite.closed_forms import serve_only, shared_prefixes
from weir.cluster.workloads.episode import Episode

ROOM = 100.0 * BLOCK


def whole(blocks: tuple[int, ...]) -> float:
    return float(len(blocks) * BLOCK)


def test_a_prompt_is_held_up_to_its_first_block_that_is_not() -> None:
    cache = PrefixCache()
    assert cache.admit((1, 2, 3), whole((1, 2, 3)), 0, ROOM) == 0
    assert cache.admit((1, 2, 4), whole((1, 2, 4)), 0, ROOM) == 2 * BLOCK  # of one that runs
    cache.leave((1, 2, 3), 0)
    assert cache.admit((9, 2, 3), whole((9, 2, 3)), 0, ROOM) == 0
    assert cache.admit((1, 2, 3), 2 * BLOCK + 7.0, 0, ROOM) == 2 * BLOCK + 7  # its last block is not full
    assert (cache.asked, cache.found) == (11 * BLOCK + 7, 4 * BLOCK + 7)


def test_other_weights_hold_nothing_but_what_runs() -> None:
    cache = PrefixCache()
    cache.admit((1, 2), whole((1, 2)), 0, ROOM)
    cache.admit((3, 4), whole((3, 4)), 0, ROOM)
    cache.leave((3, 4), 0)
    assert cache.admit((3, 4), whole((3, 4)), 1, ROOM) == 0
    assert cache.admit((1, 5), whole((1, 5)), 1, ROOM) == BLOCK
    cache.leave((1, 2), 1)
    assert cache.admit((1, 2), whole((1, 2)), 1, ROOM) == 2 * BLOCK


@pytest.mark.parametrize(("blocks_of_room", "held"), [(9, 3), (8, 2)])
def test_prompts_in_turn_are_held_as_far_as_there_is_room(blocks_of_room: int, held: int) -> None:
    """Three prompts of three blocks: with room for a block less, the next prompt's last one is always gone."""
    prompts = [(10, 11, 12), (20, 21, 22), (30, 31, 32)]
    cache, found = PrefixCache(), []
    for blocks in itertools.islice(itertools.cycle(prompts), 12):
        found.append(cache.admit(blocks, whole(blocks), 0, blocks_of_room * BLOCK))
        cache.leave(blocks, 0)
    assert found == [0.0] * 3 + [held * BLOCK] * 9


def test_the_last_blocks_of_the_oldest_prompt_go_first() -> None:
    cache = PrefixCache()
    for blocks in ((1, 2, 3), (4, 5)):
        cache.admit(blocks, whole(blocks), 0, ROOM)
        cache.leave(blocks, 0)
    assert cache.admit((6,), BLOCK, 0, 4.0 * BLOCK) == 0  # room for three of the five, beside it
    assert cache.admit((1, 2, 3), 3 * BLOCK, 0, ROOM) == BLOCK
    assert cache.admit((4, 5), 2 * BLOCK, 0, ROOM) == 2 * BLOCK


def test_an_engine_computes_what_no_prompt_before_has_left_there() -> None:
    cost = StepCost(0.01, 0.0, 0.0, 0.0, prefill_s=0.001, kv_tokens=1e6, max_running=64)
    engine = Engine(0, "e", cost)
    ends = []
    for serial in range(3):
        episode = Episode((4.0 * BLOCK,), (10.0,), (0.0,), prefix=(1, 2, 3, 10 + serial))
        request = Request(serial, serial, episode, 0.0, context=4.0 * BLOCK, remaining=10.0)
        began = 100.0 * serial
        engine.admit(request, began)
        ends.append(engine.next_event_s(began) - began)
        engine.arrive(ends[-1] + began)
    assert ends == pytest.approx([4 * BLOCK * 0.001 + 0.1, BLOCK * 0.001 + 0.1, BLOCK * 0.001 + 0.1])


def test_waits_behind_shared_prefixes_are_those_of_the_closed_form() -> None:
    check = shared_prefixes()
    assert check.simulated == pytest.approx(check.expected, rel=1e-6)


def test_a_run_says_how_much_of_its_prompts_was_held() -> None:
    def run(*prefix: int) -> float | None:
        description = Description(
            devices={"d": Device(flops=1e15, bandwidth=3e12, memory_gb=80)},
            members=(MemberGroup(kind="d", count=1),),
            costs=Costs(),
        )
        online = [Episode((2.0 * BLOCK,), (5.0,), (0.0,), 1.0 + at, prefix=prefix) for at in range(4)]
        return Simulation(description, serve_only, online=online).run(until_s=60.0).cached_share

    assert run() is None
    assert run(1, 2) == pytest.approx(3 / 4)
