"""Is a measured speed believable? Pure figures; measuring itself is not done here.

No kernel can be faster than its device can move the bytes of inputs and outputs, or than a launch takes: the roofline
(Williams, Waterman and Patterson, 2009), taken from below. A speedup above a cap is measured again, and counts only if
the second measurement agrees; what does not is flagged.
"""

from __future__ import annotations

from typing import NamedTuple

MIN_LAUNCH_US = 1.0
MAX_PLAIN_SPEEDUP = 10.0  # above it a speedup is measured twice
_AGREEMENT = 0.2  # of the smaller one


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
