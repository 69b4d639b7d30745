"""The demo's progress lines: never silent for long, and the time left as this run suggests it."""

from __future__ import annotations

import threading

import pytest

from weir.scripts.demo_loop.progress import (
    COLD_START,
    LOADING,
    REPORT,
    SILENCE_S,
    TRAINING,
    Progress,
    duration,
    expected_s,
)


class Clock:
    """Seconds as the test says them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_phases_come_in_order_and_training_takes_its_time_by_the_round() -> None:
    phases = expected_s(10)
    assert (next(iter(phases)), list(phases)[-1]) == (LOADING, REPORT)
    assert expected_s(70)[TRAINING] == pytest.approx(7 * phases[TRAINING])


def test_before_anything_is_known_the_time_left_is_what_quiet_cores_take() -> None:
    progress = Progress({"first": 10.0, "second": 90.0}, lambda _: None, clock=Clock())
    assert progress.seconds_left() == 100.0


def test_a_phase_is_reckoned_by_its_own_pace_and_those_to_come_by_how_slow_the_machine_was() -> None:
    clock = Clock()
    progress = Progress({"first": 10.0, "second": 40.0, "third": 20.0}, lambda _: None, clock=clock)
    progress.begin("first")
    clock.now = 20.0  # twice as slow as expected
    progress.begin("second", total=4, unit="steps")
    assert progress.seconds_left() == 80.0 + 40.0
    clock.now = 50.0
    progress.advance(1)  # a quarter took 30 s: 90 s more; 50 s in place of 20 so far, so that 20 s to come take 50
    assert progress.seconds_left() == pytest.approx(90.0 + 50.0)
    assert progress.status() == "second: 1 of 4 steps; about 2 min left"


def test_a_phase_that_takes_longer_than_expected_leaves_what_comes_after_it() -> None:
    clock = Clock()
    progress = Progress({"first": 10.0, "second": 5.0}, lambda _: None, clock=clock)
    clock.now = 60.0
    assert progress.seconds_left() == 5.0


def test_a_phase_that_counts_shows_how_far_it_is_and_its_note() -> None:
    progress = Progress(expected_s(70), lambda _: None, clock=Clock())
    progress.begin(TRAINING, 70, "rounds")
    progress.advance(17, "reward 0.45")
    assert progress.status().startswith("training: 17 of 70 rounds, reward 0.45; about ")


def test_it_is_never_silent_for_ten_seconds() -> None:
    assert SILENCE_S < 10
    lines: list[str] = []
    three = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            three.set()

    with Progress(expected_s(70), say, silence_s=0.01) as progress:
        progress.begin(COLD_START, 750, "steps")
        assert three.wait(60)
    assert lines[0].startswith(("loading PyTorch; about", "cold start: 0 of 750 steps; about"))
    assert lines[2].startswith("cold start: 0 of 750 steps; about")


def test_nothing_is_printed_after_the_end_even_when_the_run_failed() -> None:
    lines: list[str] = []
    with pytest.raises(ZeroDivisionError), Progress(expected_s(2), lines.append, silence_s=0.01):
        raise ZeroDivisionError
    said = len(lines)
    assert not [thread for thread in threading.enumerate() if thread.name == "demo-progress"]
    assert len(lines) == said


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "10 s"), (44, "40 s"), (89, "90 s"), (95, "2 min"), (290, "5 min"), (3600, "60 min")]
)
def test_durations_are_as_round_as_they_are_sure(seconds: float, words: str) -> None:
    assert duration(seconds) == words
