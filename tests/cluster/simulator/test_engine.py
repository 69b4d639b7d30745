"""Decoding in closed form, compared with a loop over steps."""

from __future__ import annotations

import pytest

from weir.cluster.costs.roofline import StepCost
from weir.cluster.simulator.engine import Engine, Request
from weir.cluster.workloads.episode import Episode

COST = StepCost(
    weights_s=0.01, request_s=0.001, context_s=1e-6, overhead_s=0.002, prefill_s=0.0, kv_tokens=1e5, max_running=64
)


def engine_with(*requests: tuple[float, float], cost: StepCost = COST) -> Engine:
    engine = Engine(0, "e", cost)
    for serial, (context, remaining) in enumerate(requests):
        request = Request(serial, serial, Episode((context,), (remaining,), (0.0,)), 0.0)
        request.context, request.remaining = context, remaining
        engine.admit(request, 0.0)
    return engine


def test_a_request_ends_when_a_loop_over_its_steps_says() -> None:
    engine = engine_with((1000, 2000), (3000, 5000))
    seconds, context = 0.0, 4000.0
    for _ in range(2000):
        seconds += 0.01 + 0.002 + 1e-6 * context
        context += 2
    at = engine.next_event_s(0.0)
    assert at == pytest.approx(seconds, rel=1e-4)
    (ended,) = engine.arrive(at)
    assert ended.serial == 0
    assert engine.context == pytest.approx(5000)


def test_progress_is_the_same_however_often_it_is_looked_at() -> None:
    once, often = engine_with((10, 500), (10, 900)), engine_with((10, 500), (10, 900))
    once.advance(4.0)
    for number in range(1, 401):
        often.advance(number / 100)
    assert often.clock == pytest.approx(once.clock)


def test_a_large_batch_is_bound_by_compute() -> None:
    engine = engine_with(*[(0.0, 100.0)] * 40)
    assert engine.next_event_s(0.0) == pytest.approx(100 * 0.042 + 40 * 1e-6 * 100 * 100 / 2)


def test_prefill_stalls_what_runs_and_a_cached_prefix_costs_nothing() -> None:
    cost = StepCost(0.01, 0.0, 0.0, 0.0, prefill_s=0.001, kv_tokens=1e5, max_running=64)
    engine = engine_with((1000, 10), cost=cost)
    assert engine.next_event_s(0.0) == pytest.approx(1.1)
    (request,) = engine.arrive(1.1)
    assert request.context == 1010
    request.context, request.remaining = 1060.0, 10.0
    engine.admit(request, 2.0)
    assert engine.next_event_s(2.0) == pytest.approx(2.0 + 0.05 + 0.1)


def test_an_exhausted_cache_evicts_the_youngest_with_its_partial_output() -> None:
    cost = StepCost(0.01, 0.0, 0.0, 0.0, 0.0, kv_tokens=1000, max_running=64)
    engine = engine_with((400, 500), (400, 500), cost=cost)
    at = engine.next_event_s(0.0)
    assert at == pytest.approx(1.0)
    assert engine.arrive(at) == []
    assert engine.is_full()
    request = engine.evict_youngest()
    assert (request.serial, request.context, request.remaining) == (1, pytest.approx(500), pytest.approx(400))
