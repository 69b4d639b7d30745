"""Decides whether a measured speed is plausible. Pure.

No kernel can be faster than its device moves the bytes of its inputs and outputs, or than a launch takes: the lower
bound of the roofline model (Williams, Waterman and Patterson, 2009). A speedup above a cap is measured again, and only
counts if the second measurement agrees; otherwise it is flagged.
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
    """The peak rates of a device: memory bandwidth, and arithmetic (infinite if unknown)."""

    bytes_per_s: float
    flops_per_s: float


def floor_us(num_bytes: int, num_flops: int, device: Device) -> float:
    """The least microseconds of a call that moves `num_bytes` and computes `num_flops`."""
    return max(MIN_LAUNCH_US, 1e6 * num_bytes / device.bytes_per_s, 1e6 * num_flops / device.flops_per_s)


def must_measure_again(candidate_us: float, reference_us: float, least_us: float) -> bool:
    """Whether a result is too good to rely on one measurement."""
    return candidate_us < least_us or reference_us / candidate_us > MAX_PLAIN_SPEEDUP


def confirmed_speedup(first: float, second: float, candidate_us: float, least_us: float) -> float | None:
    """The smaller of two measured speedups; None if they disagree, or if the time is below the floor."""
    low, high = sorted((first, second))
    return low if candidate_us >= least_us and high - low <= _AGREEMENT * low else None


class Speed(NamedTuple):
    """The measured speed of a candidate. `speedup` is None if it does not count, and `flagged` is the reason."""

    speedup: float | None
    candidate: Timing
    reference: Timing
    least_us: float
    flagged: str | None = None

    def report(self) -> dict[str, object]:
        """The `timing` entry of a result."""
        return {
            "timing_kind": "cuda_events",
            **self.candidate.in_ms(),
            "reference": self.reference.in_ms(),
            "least_ms": self.least_us / 1e3,
            "speedup": self.speedup,
            "flagged": self.flagged,
        }


def decide(measure: Callable[[], tuple[Timing, Timing]], least_us: float, baseline_us: float | None) -> Speed:
    """Measure the reference and the candidate, and again if the result is too good; then decide on the speedup."""
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
    """Whether a run takes far longer by an outside clock, averaged over many in a row, than the claimed time.

    Runs in a row find their data in the cache, and so take less than a timed run, except for the host's time to issue
    each step.
    """
    return wall_us > _MORE * claimed_us + _HOST_US * num_steps
