"""Costs by roofline, and costs fitted to calls."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pytest

from weir.cluster.costs.calibrate import PhaseCosts, begun_within, beside, calibrate, fit
from weir.cluster.costs.roofline import step_cost, train_priority, update_s
from weir.cluster.description import Costs, Description, Device, MemberGroup, Model
from weir.cluster.errors import ClusterInvalid
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import CLUSTER, begin_phase
from weir.store.catalog.leases import held_lease
from weir.store.config import StoreConfig

DEVICE = Device(flops=1e15, bandwidth=2e12, memory_gb=80)


def test_a_step_reads_weights_and_cache_at_the_share_of_bandwidth() -> None:
    model = Model(params=5e9, kv_bytes_per_token=1e5)
    cost = step_cost(DEVICE, model, Costs(decode_bandwidth=0.5, decode_flops=0.25, kv_memory=0.5))
    assert cost.weights_s == pytest.approx(1e10 / 1e12)
    assert cost.context_s == pytest.approx(1e5 / 1e12)
    assert cost.request_s == pytest.approx(1e10 / 2.5e14)
    assert cost.kv_tokens == pytest.approx((40e9 - 10e9) / 1e5)


def test_an_update_is_shared_by_what_members_compute() -> None:
    description = Description(
        devices={"a": DEVICE, "b": Device(flops=3e15, bandwidth=2e12, memory_gb=80)},
        members=(MemberGroup(kind="a", count=1), MemberGroup(kind="b", count=1)),
        model=Model(params=1e9),
        costs=Costs(train_flops=0.5, update_overhead_s=1.0),
    )
    assert update_s(description, ["a", "b"], 1e6) == pytest.approx(1e6 * 6e9 / (0.5 * 4e15) + 1.0)


def test_compute_strong_members_train_first() -> None:
    assert train_priority(DEVICE) > train_priority(Device(flops=1e15, bandwidth=4e12, memory_gb=80))


def test_calls_beside_each_other_are_counted_by_their_time() -> None:
    start, end = np.array([0.0, 2.0]), np.array([4.0, 4.0])
    batch, tokens = beside(start, end, np.array([10.0, 30.0]))
    assert batch.tolist() == [1.5, 2.0]
    assert tokens.tolist() == [25.0, 40.0]


def test_prefill_that_stalls_a_call_is_that_of_the_calls_that_begin_while_it_runs() -> None:
    start, end = np.array([0.0, 1.0, 5.0]), np.array([4.0, 6.0, 7.0])
    assert begun_within(start, end, np.array([10.0, 20.0, 30.0])).tolist() == [20.0, 30.0, 0.0]


def test_a_fit_finds_the_costs_that_made_the_durations() -> None:
    random = np.random.default_rng(0)
    start = np.sort(random.uniform(0, 100, 400))
    output, prompt = random.integers(10, 400, 400).astype(float), random.integers(10, 4000, 400).astype(float)
    end = start + output * 0.05
    for _ in range(200):  # durations depend on what runs beside, which depends on durations
        batch, context = beside(start, end, prompt + output / 2)
        prefill = prompt + begun_within(start, end, prompt)
        end = start + 0.5 * (end - start) + 0.5 * (output * (0.01 + 0.0005 * batch + 1e-7 * context) + 2e-5 * prefill)
    found = fit(np.stack([start, end, prompt, prompt, output], axis=1))
    assert found.step_base_s == pytest.approx(0.01, rel=0.05)
    assert found.step_request_s == pytest.approx(0.0005, rel=0.05)
    assert found.step_context_s == pytest.approx(1e-7, rel=0.3)
    assert found.prefill_token_s == pytest.approx(2e-5, rel=0.05)
    assert found.explained > 0.99


def test_a_store_gives_costs_that_a_description_takes(config: StoreConfig, record: Any, make_call: Any) -> None:
    calls = []
    for number in range(30):
        length, start = 5 + number % 7, 10_000_000 * number
        calls.append(
            make_call(
                f"c-{number}",
                list(range(8)),
                list(range(length)),
                started_us=start,
                finished_us=start + 20_000 * length,
            )
        )
    record(calls)
    found = calibrate(config.root)
    assert found.calls == 30
    assert found.step_base_s + found.step_request_s + 12 * found.step_context_s == pytest.approx(0.02, rel=0.1)
    described = Costs(**tomllib.loads(found.as_toml())["costs"])
    step = step_cost(DEVICE, Model(), described)
    simulated = step.overhead_s + max(step.weights_s, step.request_s) + 12 * step.context_s
    assert simulated == pytest.approx(0.02, rel=0.1), "a step of the simulator takes what was fitted"


def test_calls_beside_each_other_are_divided_among_the_engines_that_took_them() -> None:
    random = np.random.default_rng(0)
    start = np.sort(random.uniform(0, 100, 400))
    output = random.integers(10, 400, 400).astype(float)
    two = np.array([[0.0, 1000.0], [0.0, 1000.0]])
    end = start + output * 0.05
    for _ in range(200):
        batch, _ = beside(start, end, output)
        end = start + 0.5 * (end - start) + 0.5 * output * (0.01 + 0.001 * np.maximum(batch / 2, 1.0))
    rows = np.stack([start, end, np.zeros(400), np.zeros(400), output], axis=1)
    assert fit(rows, two).step_request_s == pytest.approx(0.001, rel=0.05)
    assert fit(rows).step_request_s == pytest.approx(0.0005, rel=0.2)


def test_a_store_without_calls_is_refused(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("c-1", [1, 2], [3])])
    with pytest.raises(ClusterInvalid, match="has 1 calls with tokens; a fit needs 20"):
        calibrate(config.root)


def test_updates_and_switches_are_medians_over_the_phases_of_members(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    record([make_call(f"c-{number}", [1, 2], [3, 4], started_us=10**8, finished_us=10**8 + 1) for number in range(20)])
    steps = [  # phase, event that began it, seconds that it took, of them in training
        ("waits", "member_joined", 1, 0),
        ("switch", "member_joined", 50, 0),  # brings no member back from training
        *[("rollout", "member_settled", 9, 0), ("switch", "sample_ready", 2, 0), ("waits", "member_settled", 1, 0)],
        *[("train", "sample_ready", 7, 5), ("waits", "training_failed", 1, 0)],
        *[("train", "sample_ready", 9, 8), ("waits", "trained", 1, 0), ("switch", "trained", 4, 0)],
        *[("rollout", "member_settled", 9, 0), ("load", "trained", 3, 0), ("rollout", "weights_loaded", 1, 0)],
    ]
    catalog = Catalog.open(config)
    with held_lease(catalog, CLUSTER, "test", 120.0) as lease:
        at_us, spent = 0, {}
        for phase, event, took_s, training_s in steps:
            begin_phase(catalog, "both", phase, event, lease, began_us=at_us, seconds=spent)
            at_us, spent = at_us + took_s * 1_000_000, {"train": training_s, "awaits_judge": took_s - training_s}
    catalog.close()
    found = calibrate(config.root)
    assert found.phases == PhaseCosts(update_s=8.0, judge_s=1.0, to_train_s=2.0, to_rollout_s=4.0, load_s=3.0)
    assert calibrate(config.root, since_s=80.0).phases == found.phases, (
        "what did not happen since then has its old cost"
    )
    costs = Costs(**tomllib.loads(found.as_toml())["costs"])
    assert (costs.update_s, costs.to_train_s, costs.to_rollout_s, costs.load_s) == (8.0, 2.0, 4.0, 3.0)
    assert (costs.judge_s, costs.judge_overlaps) == (1.0, False)
    assert (costs.state_s, costs.spread_s) == (0.0, 0.0), "they are in what was measured"
