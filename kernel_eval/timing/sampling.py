"""Samples the time of calls: warm-up, order, when to stop, and statistics. The clock is the caller's.

A timed call is a callable that makes one call on fresh inputs and returns its microseconds (`cuda_clock.py` on a
device). Calls that are compared are sampled alternately, in an unpredictable order, so that a device that heats up or
is throttled slows all of them.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence

import msgspec

MIN_WARM_UP_CALLS = 10
MIN_WARM_UP_S = 0.025
MAX_SAMPLES = 100
MIN_SAMPLES = 20
BUDGET_S = 20.0  # for the samples of calls that are compared, their inputs and the check of their answers included
LEAST_SAMPLES = 5  # also beyond the budget
_ENOUGH = 0.002  # standard error over mean at which sampling stops

TimedCall = Callable[[], float]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of several calls of one function."""

    median_us: float
    p20_us: float
    p80_us: float
    mean_us: float
    std_us: float
    num_calls: int

    @property
    def variation(self) -> float:
        """The coefficient of variation: deviation over mean."""
        return self.std_us / self.mean_us if self.mean_us else 0.0

    def in_ms(self) -> dict[str, float]:
        """The statistics in milliseconds, as results report them."""
        names = ("median", "p20", "p80", "mean", "std")
        return {f"{name}_ms": getattr(self, f"{name}_us") / 1e3 for name in names} | {"num_calls": self.num_calls}


def summarize(samples_us: Sequence[float]) -> Timing:
    """The statistics of at least one sample. Percentiles are interpolated linearly."""
    ordered = sorted(samples_us)
    return Timing(
        median_us=statistics.median(ordered),
        p20_us=_percentile(ordered, 0.2),
        p80_us=_percentile(ordered, 0.8),
        mean_us=statistics.fmean(ordered),
        std_us=statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
        num_calls=len(ordered),
    )


def is_precise(samples_us: Sequence[float]) -> bool:
    """Whether the mean is precise enough to stop sampling."""
    if len(samples_us) < MIN_SAMPLES:
        return False
    timing = summarize(samples_us)
    return timing.variation / math.sqrt(timing.num_calls) <= _ENOUGH


def warm_up(call: TimedCall, most_s: float = math.inf) -> None:
    """Call until both ten calls and 25 ms have passed, or `most_s`: a device raises its clock only under load."""
    started, num_calls = time.perf_counter(), 0
    while num_calls < MIN_WARM_UP_CALLS or time.perf_counter() - started < MIN_WARM_UP_S:
        call()
        num_calls += 1
        if time.perf_counter() - started >= most_s:
            break


def measure(
    calls: Sequence[TimedCall], seed: int, max_samples: int = MAX_SAMPLES, budget_s: float = BUDGET_S
) -> list[Timing]:
    """Sample calls alternately, one of each per turn, until all are precise or `max_samples` is reached.

    Calls whose inputs are large take long around the time that counts: after `budget_s` of wall time, warm-up
    included, five samples of each are enough.
    """
    order = random.Random(seed)
    started = time.perf_counter()
    for call in calls:
        warm_up(call, budget_s / (4 * len(calls)))
    samples: list[list[float]] = [[] for _ in calls]
    turn = list(range(len(calls)))
    for _ in range(max_samples):
        order.shuffle(turn)
        for position in turn:
            samples[position].append(calls[position]())
        if all(is_precise(taken) for taken in samples):
            break
        if len(samples[0]) >= LEAST_SAMPLES and time.perf_counter() - started >= budget_s:
            break
    return [summarize(taken) for taken in samples]


def _percentile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
