"""Times one call on a CUDA device by the device's own events.

Before each call the cache is emptied: persisting lines are reset, and a buffer of at least twice the L2's size is
written. That also keeps the device busy while the host issues the call, so that no launch latency is measured; where it
did not last until the host had issued all of a call, the device waits before the next one, too. The host does not
synchronise between the events. If a call leaves work on other streams, the device is not idle after the end event, and
the time until it is counts as well, less what the host takes to find an idle device idle.

A candidate could replace everything that this module uses in its own process. Therefore it may time only trusted code:
a task's reference, a benchmark's kernels, replayed launches.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import torch

from weir.kernel_eval.timing import roofline

MIN_FLUSH_BYTES = 256 << 20
MOST_WAIT_US = 10_000.0  # before a call: one that waits for the device itself is never issued in time
_CYCLES_PER_US = 2_000.0  # of a device, about
_IDLE_US = 50.0  # by more than this a synchronisation of an idle device does not vary


def flush_bytes(l2_bytes: int) -> int:
    """The number of bytes to write so that no data of an earlier call is left in the cache."""
    return max(MIN_FLUSH_BYTES, 2 * l2_bytes)


class GpuClock:
    """Times calls on one device, by its index. Creates a CUDA context in this process."""

    def __init__(self, device: int) -> None:
        self._device = torch.device("cuda", device)
        torch.cuda.set_device(self._device)
        properties: Any = torch.cuda.get_device_properties(self._device)
        size = flush_bytes(properties.L2_cache_size)
        self._flush = torch.empty(size, dtype=torch.uint8, device=self._device)
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._wait_us = 0.0

    def time_us(self, call: Callable[[], object]) -> float:
        """Microseconds of one call, whose inputs must be on the device already. Raises RuntimeError if CUDA fails."""
        start, end = self._event(), self._event()
        torch.cuda.synchronize(self._device)
        idle_us = self._synchronise_us()
        status = self._driver.cuCtxResetPersistingL2Cache()
        if status not in (0, 801):  # 801: the device cannot make lines persist
            raise RuntimeError(f"cuCtxResetPersistingL2Cache returned {status}; expected 0, see CUresult in cuda.h")
        self._flush.zero_()
        if self._wait_us:
            torch.cuda._sleep(int(self._wait_us * _CYCLES_PER_US))  # type: ignore[no-untyped-call]
        start.record()
        began = time.perf_counter()
        call()
        issued_us = 1e6 * (time.perf_counter() - began)
        self._wait_us = next_wait_us(self._wait_us, issued_us, was_late=start.query())
        end.record()
        end.synchronize()
        left_us = self._synchronise_us() - idle_us
        return 1e3 * float(start.elapsed_time(end)) + (left_us if left_us > _IDLE_US else 0.0)

    def _synchronise_us(self) -> float:
        """Microseconds until the device is idle."""
        began = time.perf_counter()
        torch.cuda.synchronize(self._device)
        return 1e6 * (time.perf_counter() - began)

    def _event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def next_wait_us(wait_us: float, issued_us: float, *, was_late: bool) -> float:
    """How long the device is to wait before the next call; `was_late`: it came to a call before the host had issued it.

    The wait grows to twice what the host needs, and slowly falls to it after a moment in which the host was slow.
    """
    needed_us = 2 * issued_us
    if was_late:
        return min(MOST_WAIT_US, max(2 * wait_us, needed_us))
    return max(0.95 * wait_us, min(wait_us, needed_us))


def least_us(inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> float:
    """The roofline floor of a call in microseconds: inputs are read once, outputs beyond the L2's size are written."""
    properties: Any = torch.cuda.get_device_properties(0)
    read = sum(tensor.numel() * tensor.itemsize for tensor in inputs)
    written = sum(tensor.numel() * tensor.itemsize for tensor in outputs)
    clock_khz, bus_bits = (getattr(properties, name, None) for name in ("memory_clock_rate", "memory_bus_width"))
    bytes_per_s = float("inf") if clock_khz is None or bus_bits is None else 2 * clock_khz * 1e3 * bus_bits / 8
    num_bytes = read + max(0, written - properties.L2_cache_size)
    return roofline.floor_us(num_bytes, 0, roofline.Device(bytes_per_s, float("inf")))


def fresh_calls(
    clock: GpuClock, function: Callable[..., object], make_inputs: Callable[[], list[Any]]
) -> Callable[[], float]:
    """A timed call of a function, each time with new contents at other addresses than in the previous call."""
    held: list[Any] = []

    def call() -> float:
        inputs = make_inputs()  # made while the previous inputs still hold their memory
        held[:] = inputs
        return clock.time_us(lambda: function(*inputs))

    return call
