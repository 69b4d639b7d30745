"""Sampling takes no longer than its budget where inputs are large, and then as many samples of each call."""

from __future__ import annotations

import time

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
