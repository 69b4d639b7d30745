"""Is a measured speed believable? Pure figures; measuring itself is not done here.

No kernel can be faster than its device can move the bytes of inputs and outputs, or than a launch takes: the roofline
(Williams, Waterman and Patterson, 2009), taken from below. A speedup above a cap is measured again, and counts only if
the second measurement agrees; what does not is flagged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from weir.kernel_eval.timing.baselines import believable_us
from weir.kernel_eval.timing.sampling import Timing

MIN_LAUNCH_US = 1.0
MAX_PLAIN_SPEEDUP = 10.0  # above it a speedup is measured twice
_AGREEMENT = 0.2  # of the smaller one
_MORE, _HOST_US = 1.5, 150.0


class Device(NamedTuple):
    """What a device can do at most: its memory's bandwidth, and arithmetic without tensor cores where unknown."""

    bytes_per_s: float
    flops_per_s: float


def floor_us(num_bytes: int, num_flops: int, device: Device) -> float:
    """The least time that a call can take which has to read and write `num_bytes` and to compute `num_flops`."""
    return max(MIN_LAUNCH_US, 1e6 * num_bytes / device.bytes_per_s, 1e6 * num_flops / device.flops_per_s)


def must_measure_again(candidate_us: float, reference_us: float, least_us: float) -> bool:
    """Too good to be taken from one measurement."""
    return candidate_us < least_us or reference_us / candidate_us > MAX_PLAIN_SPEEDUP


def confirmed_speedup(first: float, second: float, candidate_us: float, least_us: float) -> float | None:
    """The smaller of two measured speedups; None, to be flagged, where they disagree or no device is that fast."""
    low, high = sorted((first, second))
    return low if candidate_us >= least_us and high - low <= _AGREEMENT * low else None


class Speed(NamedTuple):
    """What was found of a candidate's speed. `speedup` is None where it does not count, and `flagged` says why."""

    speedup: float | None
    candidate: Timing
    reference: Timing
    least_us: float
    flagged: str | None = None

    def report(self) -> dict[str, object]:
        """As results report it."""
        return {
            "timing_kind": "cuda_events",
            **self.candidate.in_ms(),
            "reference": self.reference.in_ms(),
            "least_ms": self.least_us / 1e3,
            "speedup": self.speedup,
            "flagged": self.flagged,
        }


def decide(measure: Callable[[], tuple[Timing, Timing]], least_us: float, baseline_us: float | None) -> Speed:
    """Measure (the reference and the candidate), and once more what is too good to be true."""
    reference, candidate = measure()
    first = believable_us(reference.median_us, baseline_us) / candidate.median_us
    if not must_measure_again(candidate.median_us, first * candidate.median_us, least_us):
        return Speed(first, candidate, reference, least_us)
    reference, candidate = measure()
    second = believable_us(reference.median_us, baseline_us) / candidate.median_us
    confirmed = confirmed_speedup(first, second, candidate.median_us, least_us)
    below = candidate.median_us < least_us
    reason = "faster than the device can be" if below else f"speedups of {first:.1f} and {second:.1f} do not agree"
    return Speed(confirmed, candidate, reference, least_us, None if confirmed is not None else reason)


def contradicts_clock(claimed_us: float, wall_us: float, num_steps: int) -> bool:
    """Whether many runs in a row take far longer, by a clock outside, than one was said to take.

    Runs in a row find their data in the cache, and so take less than a timed one, except for what the host takes to
    issue each step.
    """
    return wall_us > _MORE * claimed_us + _HOST_US * num_steps
