"""One call on a CUDA device, timed by the device's own events.

Before each call the cache is emptied: lines that a kernel made persist are given up, and a buffer of at least twice the
L2 is written. The flush also keeps the device busy while the host issues the call, so that no launch latency is
measured, and no host synchronisation lies between the events. What a call leaves running on other streams is seen after
the end event: where the device is not idle then, the time until it is counts as well.

Not here: whose process this is. In a process that runs a candidate, the candidate could replace everything that this
file uses; so only trusted code may be timed with it (a task's reference, the benchmark's own kernels, replayed
launches).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import torch

from weir.kernel_eval.timing import roofline

MIN_FLUSH_BYTES = 256 << 20
_IDLE_US = 50.0  # a synchronisation of an idle device, with room to spare


def flush_bytes(l2_bytes: int) -> int:
    """How much is written to be sure that nothing of an earlier call is left in the cache."""
    return max(MIN_FLUSH_BYTES, 2 * l2_bytes)


class GpuClock:
    """One device, by its index. Makes CUDA's context in this process."""

    def __init__(self, device: int) -> None:
        self._device = torch.device("cuda", device)
        torch.cuda.set_device(self._device)
        properties: Any = torch.cuda.get_device_properties(self._device)
        size = flush_bytes(properties.L2_cache_size)
        self._flush = torch.empty(size, dtype=torch.uint8, device=self._device)
        self._driver = ctypes.CDLL("libcuda.so.1")

    def time_us(self, call: Callable[[], object]) -> float:
        """Microseconds of one call, whose inputs are on the device already."""
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
    """The roofline floor of a call on this device: every input is read once, and of the outputs what no cache holds."""
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
    """Timed calls of a function, each with new contents at an address that the call before did not have."""
    held: list[Any] = []

    def call() -> float:
        inputs = make_inputs()  # made while those of the call before still hold their memory
        held[:] = inputs
        return clock.time_us(lambda: function(*inputs))

    return call
