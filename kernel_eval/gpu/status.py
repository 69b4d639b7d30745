"""The status of this machine's GPUs, from NVIDIA's management library (NVML).

A figure that a GPU does not report is None. A GPU with uncorrected memory errors, or that does not report its memory,
is unhealthy: its results say nothing about a candidate.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pynvml

_TIMEOUT_S = 30.0
_MIB = 1 << 20

Result = TypeVar("Result")


class GpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU."""

    index: int
    uuid: str
    name: str
    driver: str
    memory_total_mib: int | None
    memory_used_mib: int | None
    utilization_percent: int | None
    temperature_c: int | None
    uncorrected_errors: int | None  # since the driver was loaded

    @property
    def healthy(self) -> bool:
        """Whether its results can be trusted."""
        return not self.uncorrected_errors and self.memory_total_mib is not None


class GpuStatusError(Exception):
    """NVML reported an error, or nvidia-smi during a reset, or did not answer."""


def read() -> list[GpuStatus]:
    """All GPUs of this machine; none without a driver. Raises `GpuStatusError`. Blocks."""
    return _within_timeout(_read)


def find(index: int) -> GpuStatus | None:
    """The GPU of that number; None if there is none. Raises `GpuStatusError`. Blocks."""
    return next((gpu for gpu in read() if gpu.index == index), None)


def users(gpu: GpuStatus) -> list[int]:
    """The pids of processes that compute on a GPU. Raises `GpuStatusError`. Blocks."""
    return _within_timeout(lambda: _users(gpu.uuid))


def _read() -> list[GpuStatus]:
    with _nvml() as has_driver:
        if not has_driver:
            return []
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        return [_status(index, driver) for index in range(pynvml.nvmlDeviceGetCount())]


def _users(uuid: str) -> list[int]:
    with _nvml() as has_driver:
        if not has_driver:
            return []
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return [int(process.pid) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]


def _status(index: int, driver: str) -> GpuStatus:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = _figure(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2))
    rates = _figure(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
    errors = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    return GpuStatus(
        index=index,
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        name=str(pynvml.nvmlDeviceGetName(handle)),
        driver=driver,
        memory_total_mib=None if memory is None else int(memory.total) // _MIB,
        memory_used_mib=None if memory is None else int(memory.used) // _MIB,
        utilization_percent=None if rates is None else int(rates.gpu),
        temperature_c=_figure(lambda: int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))),
        uncorrected_errors=_figure(lambda: int(pynvml.nvmlDeviceGetTotalEccErrors(handle, *errors))),
    )


def _figure(query: Callable[[], Any]) -> Any:
    """One figure; None if the GPU does not report it."""
    try:
        return query()
    except pynvml.NVMLError:
        return None


@contextlib.contextmanager
def _nvml() -> Iterator[bool]:
    """NVML, initialised only while it is used: a GPU cannot be reset while any process holds it open.

    Yields False on a machine without a driver. Raises `GpuStatusError` for NVML's errors.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        yield False
        return
    except pynvml.NVMLError as error:
        raise GpuStatusError(f"NVML cannot be initialised: {error}; see nvidia-smi") from error
    try:
        yield True
    except pynvml.NVMLError as error:
        raise GpuStatusError(f"NVML reports: {error}; see nvidia-smi") from error
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _within_timeout(query: Callable[[], Result]) -> Result:
    """Run a query in a daemon thread, since a call about a GPU that hangs may never return."""
    answers: queue.SimpleQueue[Result | Exception] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put(query())
        except Exception as error:  # raised again in the caller's thread
            answers.put(error)

    threading.Thread(target=answer, name="nvml", daemon=True).start()
    try:
        result = answers.get(timeout=_TIMEOUT_S)
    except queue.Empty:
        raise GpuStatusError(f"NVML did not answer within {_TIMEOUT_S:g} s: a GPU may have hung") from None
    if isinstance(result, Exception):
        raise result
    return result
