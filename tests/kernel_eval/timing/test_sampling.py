"""Sampling: alternately, until precise, at most so many, and no longer than its budget where inputs are large.

Invariant: both of two calls have as many samples.
"""

from __future__ import annotations

import time

import pytest

from weir.kernel_eval.timing import sampling


def test_sampling_ends_with_its_budget_and_the_least_samples() -> None:
    calls = [0, 0]

    def slow(number: int) -> float:
        calls[number] += 1
        time.sleep(0.01)
        return 1.0 + calls[number] % 2

    found = sampling.measure([lambda: slow(0), lambda: slow(1)], seed=1, budget_s=0.0)
    assert [timing.num_calls for timing in found] == [sampling.LEAST_SAMPLES] * 2
    assert calls == [sampling.LEAST_SAMPLES + 1] * 2, "the warm-up, too, belongs to the budget"


@pytest.mark.parametrize(("spread", "samples"), [(0.0, sampling.MIN_SAMPLES), (0.5, 40)])
def test_sampling_within_its_budget_ends_when_precise_or_at_the_most(spread: float, samples: int) -> None:
    number = iter(range(10**9))
    found = sampling.measure([lambda: 1.0 + spread * (next(number) % 2)] * 2, seed=1, max_samples=40)
    assert [timing.num_calls for timing in found] == [samples] * 2
