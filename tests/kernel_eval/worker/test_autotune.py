"""Which configurations of an autotuned kernel are taken and recorded where nothing can be timed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from weir.kernel_eval.worker import autotune
from weir.kernel_eval.worker.kernel_values import NeedsKernelResult


class Tuner:
    """Stands for Triton's; a configuration is a number."""

    arg_names = ("x",)

    def __init__(self, num_configs: int) -> None:
        self.configs = list(range(num_configs))

    def prune_configs(self, kwargs: dict[str, Any]) -> list[int]:
        return self.configs


class Steps:
    """Stands for the recorder, which notes the configuration as a step."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.alternatives: list[list[int]] = []
        self.num_failed = 0

    @contextlib.contextmanager
    def aside(self) -> Iterator[list[int]]:
        kept, self.steps = self.steps, []
        try:
            yield self.steps
        finally:
            self.steps = kept

    def add_alternatives(self, found: list[list[int]]) -> None:
        self.alternatives = found


def runs(monkeypatch: pytest.MonkeyPatch, steps: Steps, refuse: Callable[[int], None]) -> None:
    def run(tuner: Tuner, *args: Any, **kwargs: Any) -> int:
        (config,) = tuner.configs
        refuse(config)
        steps.steps.append(config)
        return config

    monkeypatch.setattr(autotune, "_run", run)


def below_two(config: int) -> None:
    if config < 2:
        raise ValueError("does not compile")


@pytest.mark.parametrize("seed", [1, 2])
def test_the_first_that_works_is_taken_and_some_others_are_recorded(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    steps, again = Steps(), Steps()
    for one in (steps, again):
        runs(monkeypatch, one, below_two)
        assert autotune.run_each(Tuner(100), one, 0, seed, (0,), {}) == 2
    assert (steps.steps, steps.num_failed) == ([2], 2)
    others = [config for (config,) in steps.alternatives[1:]]
    assert len({*others}) == autotune.MOST_SAMPLED - 1
    assert min(others) > 2
    assert others != sorted(others)
    assert again.alternatives == steps.alternatives


def test_all_are_recorded_for_a_gpu_but_those_that_a_target_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps()
    runs(monkeypatch, steps, below_two)
    autotune.run_each(Tuner(6), steps, 3, None, (0,), {})
    assert steps.alternatives == [[3], [4], [5]]


def test_a_configuration_that_asks_for_a_kernels_result_is_an_error_and_no_other_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asks(config: int) -> None:
        if config == 0:
            raise NeedsKernelResult("reads")

    runs(monkeypatch, Steps(), asks)
    with pytest.raises(NeedsKernelResult):
        autotune.run_first_that_works(Tuner(2), 0, (0,), {})
    with pytest.raises(NeedsKernelResult):
        autotune.run_each(Tuner(2), Steps(), 0, 1, (0,), {})  # type: ignore[arg-type]
