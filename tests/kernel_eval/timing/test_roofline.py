"""Which measured speeds count, and the keys of baselines; the times are given, not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from weir.kernel_eval.ipc.messages import Failed
from weir.kernel_eval.ipc.trace import Place
from weir.kernel_eval.judge.channel import fault_classification
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.replay.device.player import has_layout_of
from weir.kernel_eval.reward import Outcome, Stage, default
from weir.kernel_eval.timing import baselines, roofline, sampling

HERE = baselines.Surroundings("NVIDIA H100", "580.95", "2.13.0", "3.7.1", "sm_90")


def measuring(*pairs: tuple[float, float]) -> Callable[[], tuple[sampling.Timing, sampling.Timing]]:
    """A measurement that returns these pairs of (reference, candidate) medians in turn."""
    left: Iterator[tuple[float, float]] = iter(pairs)

    def measure() -> tuple[sampling.Timing, sampling.Timing]:
        reference, candidate = next(left)
        return sampling.summarize([reference]), sampling.summarize([candidate])

    return measure


def test_a_plain_speedup_is_taken_from_one_measurement() -> None:
    found = roofline.decide(measuring((100.0, 50.0)), least_us=10.0, baseline_us=None)
    assert (found.speedup, found.flagged) == (2.0, None)
    assert default(Outcome(Stage.CORRECT, found.speedup)) == pytest.approx(1.3)


def test_a_great_speedup_is_measured_again_and_counts_if_both_agree() -> None:
    found = roofline.decide(measuring((3000.0, 100.0), (2800.0, 100.0)), least_us=10.0, baseline_us=None)
    assert (found.speedup, found.flagged) == (28.0, None)
    scattered = roofline.decide(measuring((3000.0, 100.0), (1100.0, 100.0)), least_us=10.0, baseline_us=None)
    assert scattered.speedup is None
    assert scattered.flagged == "speedups of 30.0 and 11.0 do not agree"


def test_what_no_device_can_do_does_not_count() -> None:
    found = roofline.decide(measuring((20.0, 5.0), (20.0, 5.0)), least_us=8.0, baseline_us=None)
    assert (found.speedup, found.flagged) == (None, "faster than the device can be")
    assert default(Outcome(Stage.CORRECT, found.speedup, timed=True)) == 0.3
    assert default(Outcome(Stage.LOADED, found.speedup, timed=True)) == 0.1


def test_a_reference_that_was_slowed_down_is_held_to_its_baseline() -> None:
    found = roofline.decide(measuring((400.0, 100.0)), least_us=1.0, baseline_us=100.0)
    assert found.speedup == pytest.approx(1.1)
    assert roofline.decide(measuring((90.0, 100.0)), least_us=1.0, baseline_us=100.0).speedup == 0.9


def test_a_claim_that_the_judges_clock_contradicts_is_seen() -> None:
    assert roofline.contradicts_clock(claimed_us=10.0, wall_us=1000.0, num_steps=2)
    assert not roofline.contradicts_clock(claimed_us=10.0, wall_us=200.0, num_steps=2)
    assert not roofline.contradicts_clock(claimed_us=900.0, wall_us=1000.0, num_steps=2)


def test_a_baseline_is_of_one_task_on_one_device_with_one_set_of_libraries() -> None:
    others = [HERE._replace(**{field: "other"}) for field in HERE._fields]
    keys = {baselines.key("source", here) for here in (HERE, *others)} | {baselines.key("another", HERE)}
    assert len(keys) == 2 + len(HERE._fields)
    assert baselines.key("source", HERE) == baselines.key("source", HERE)


def test_a_baseline_is_the_shortest_time_and_outlives_the_server(tmp_path: Path) -> None:
    kept = baselines.Baselines(tmp_path / "baselines.json")
    for measured_us in (12.0, 10.0, 11.0):
        kept.note("task", measured_us)
    assert baselines.Baselines(tmp_path / "baselines.json").find("task") == 10.0
    assert kept.find("another") is None
    assert [path.name for path in tmp_path.iterdir()] == ["baselines.json"]


@pytest.mark.parametrize(
    ("refused_by", "fault"),
    [
        ("compiler", Fault.TRITON_COMPILE_ERROR),
        ("shared_memory", Fault.SHARED_MEM_EXCEEDED),
        ("threads", Fault.LAUNCH_FAILURE),
    ],
)
def test_what_triton_refuses_before_a_launch_is_told_apart(refused_by: str, fault: Fault) -> None:
    failed = Failed("call", "OutOfResources", "out of resource", "", refused_by=refused_by)  # type: ignore[arg-type]
    assert fault_classification.from_exception(failed).fault is fault


def test_what_an_operator_made_is_taken_as_it_is_only_where_it_lies_as_in_the_trace() -> None:
    made = torch.empty(4, 6)
    place = Place(0, "float32", (4, 6), (6, 1), 0)
    assert has_layout_of(made, place, 96)
    assert not has_layout_of(made, place, 97)  # later steps may name what lies behind it
    assert not has_layout_of(made.t(), place, 96)
    assert not has_layout_of(made[1:], Place(0, "float32", (3, 6), (6, 1), 0), 72)
