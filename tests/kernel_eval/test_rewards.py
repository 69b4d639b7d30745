"""Rewards compared with values computed by hand."""

from __future__ import annotations

import pytest

from weir.kernel_eval.errors import UnknownReward
from weir.kernel_eval.reward import Outcome, Stage, find_reward
from weir.kernel_eval.timing import roofline


@pytest.mark.parametrize(
    ("stage", "speedup", "reward"),
    [
        (Stage.NOTHING, None, 0.0),
        (Stage.LOADED, None, 0.1),
        (Stage.ANSWERED, None, 0.3),
        (Stage.CORRECT, None, 1.0),
        (Stage.CORRECT, 0.5, 0.3),
        (Stage.CORRECT, 1.0, 0.3),
        (Stage.CORRECT, 1.5, 0.8),
        (Stage.CORRECT, 3.0, 2.3),
        (Stage.CORRECT, 50.0, 2.3),
    ],
)
def test_the_default_reward_pays_for_speed_where_it_was_measured(
    stage: Stage, speedup: float | None, reward: float
) -> None:
    assert find_reward("default")(Outcome(stage, speedup)) == pytest.approx(reward)


def test_a_wrong_answer_earns_what_compiling_does_where_speed_counts() -> None:
    assert find_reward("speedup")(Outcome(Stage.ANSWERED)) == 0.1


@pytest.mark.parametrize(
    ("name", "speedup", "reward"),
    [
        ("log_speedup", None, 0.3),
        ("log_speedup", 0.5, 0.3),
        ("log_speedup", 2.0, 1.3),
        ("log_speedup", 64.0, 2.3),
        ("fast_1", None, 0.3),
        ("fast_1", 1.0, 0.3),
        ("fast_1", 1.1, 1.0),
        ("fast_1.5", 1.1, 0.3),
        ("fast_2", 2.1, 1.0),
    ],
)
def test_speed_is_rewarded_by_its_logarithm_or_by_a_bound(name: str, speedup: float | None, reward: float) -> None:
    assert find_reward(name)(Outcome(Stage.CORRECT, speedup, timed=True)) == pytest.approx(reward)
    assert find_reward(name)(Outcome(Stage.ANSWERED, speedup, timed=True)) == 0.1


def test_a_reward_can_be_named_by_its_import_path() -> None:
    assert find_reward("weir.kernel_eval.reward:by_stage")(Outcome(Stage.CORRECT, 9.0)) == 1.0


@pytest.mark.parametrize("name", ["fastest", "no.such.module:f", "weir.kernel_eval.reward:nothing", ""])
def test_a_reward_that_is_not_there_is_an_error_that_names_those_that_are(name: str) -> None:
    with pytest.raises(UnknownReward, match="by_stage"):
        find_reward(name)


def test_no_call_is_faster_than_its_bytes_its_arithmetic_or_a_launch() -> None:
    device = roofline.Device(bytes_per_s=1e12, flops_per_s=1e13)
    assert roofline.floor_us(8_000_000, 1, device) == pytest.approx(8.0)
    assert roofline.floor_us(8, 10**9, device) == pytest.approx(100.0)
    assert roofline.floor_us(8, 8, device) == 1.0


def test_a_speedup_that_is_too_good_is_measured_again_and_counts_when_it_comes_again() -> None:
    assert roofline.must_measure_again(candidate_us=5.0, reference_us=100.0, least_us=1.0)
    assert roofline.must_measure_again(candidate_us=5.0, reference_us=6.0, least_us=8.0)
    assert not roofline.must_measure_again(candidate_us=50.0, reference_us=100.0, least_us=8.0)
    assert roofline.confirmed_speedup(20.0, 21.0, candidate_us=5.0, least_us=1.0) == 20.0
    assert roofline.confirmed_speedup(20.0, 30.0, candidate_us=5.0, least_us=1.0) is None
    assert roofline.confirmed_speedup(20.0, 20.0, candidate_us=5.0, least_us=8.0) is None
