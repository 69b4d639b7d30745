"""Chooses configurations of autotuned kernels on the device, by their times on the inputs of a record.

The times are those of this process's clock, and nothing of the candidate decides. What is chosen is what is tried,
proven and timed from then on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from weir.kernel_eval.gpu.cuda_driver import CudaDriverError
from weir.kernel_eval.ipc.trace import Launch
from weir.kernel_eval.replay.device.kernels import DeviceKernels

BUDGET_S = 20.0  # for all launches of a record
_LONG_US = 5_000.0  # launches that take longer are timed once
_BATCHES, _PER_BATCH = 4, 5


class Tuning:
    """The choices for one record."""

    def __init__(self, kernels: DeviceKernels) -> None:
        self._kernels = kernels
        self._known: dict[tuple[int | None, ...], int] = {}
        self._ends_at = time.monotonic() + BUDGET_S

    def chosen(self, launch: Launch, storages: Sequence[torch.Tensor]) -> Launch:
        """The fastest way to make a launch; the first that was built, if no time is left. Storages are overwritten."""
        ways = usable(launch, self._kernels)
        if len(ways) < 2:
            return ways[0] if ways else launch
        key = tuple(way.ir for way in ways)
        if key not in self._known:
            times = [self._time_us(way, storages) for way in ways]
            self._known[key] = times.index(min(times))
        return ways[self._known[key]]

    def _time_us(self, launch: Launch, storages: Sequence[torch.Tensor]) -> float:
        """Microseconds of one launch; infinite if the device refuses it, or if no time is left."""
        if time.monotonic() > self._ends_at:
            return float("inf")
        try:
            self._kernels.launch(launch, storages)  # loads the code
            first = _time_us(lambda: self._kernels.launch(launch, storages))
            if first > _LONG_US:
                return first
            batch = [_time_us(lambda: self._batch(launch, storages)) for _ in range(_BATCHES)]
            return min(batch) / _PER_BATCH
        except (CudaDriverError, ValueError):  # too many registers, for example; an error of a kernel comes from torch
            return float("inf")

    def _batch(self, launch: Launch, storages: Sequence[torch.Tensor]) -> None:
        for _ in range(_PER_BATCH):
            self._kernels.launch(launch, storages)


def usable(launch: Launch, kernels: DeviceKernels) -> list[Launch]:
    """The ways to make a launch that were built, and touch nothing that the first does not."""
    ways = [launch, *(other for other in launch.alternatives if other.storages <= launch.storages)]
    return [way for way in ways if kernels.has(way.ir)]


def _time_us(call: Callable[[], None]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3
