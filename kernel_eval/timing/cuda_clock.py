"""Times one call on a CUDA device by the device's own events.

Before each call the cache is emptied: persisting lines are reset, and a buffer of at least twice the L2's size is
written. That also keeps the device busy while the host issues the call, so that no launch latency is measured; the host
does not synchronise between the events. If a call leaves work on other streams, the device is not idle after the end
event, and the time until it is counts as well.

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
_IDLE_US = 50.0  # more than a synchronisation of an idle device takes


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

    def time_us(self, call: Callable[[], object]) -> float:
        """Microseconds of one call, whose inputs must be on the device already. Raises RuntimeError if CUDA fails."""
        start, end = self._event(), self._event()
        torch.cuda.synchronize(self._device)
        status = self._driver.cuCtxResetPersistingL2Cache()
        if status not in (0, 801):  # 801: the device cannot make lines persist
            raise RuntimeError(f"cuCtxResetPersistingL2Cache returned {status}; expected 0, see CUresult in cuda.h")
        self._flush.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        ended = time.perf_counter()
        torch.cuda.synchronize(self._device)
        left_us = 1e6 * (time.perf_counter() - ended)
        return 1e3 * float(start.elapsed_time(end)) + (left_us if left_us > _IDLE_US else 0.0)

    def _event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


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
