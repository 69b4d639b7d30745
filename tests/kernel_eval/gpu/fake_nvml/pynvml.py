"""A fake of nvidia-ml-py for machines without a driver, with the GPUs in the variable FAKE_GPUS, as JSON."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_TEMPERATURE_GPU, nvmlMemory_v2 = range(4)
opened = 0  # how often it was initialised, less the shutdowns


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


def _gpus() -> list[dict[str, Any]]:
    assert opened, "NVML is not initialised"
    gpus: list[dict[str, Any]] = json.loads(os.environ["FAKE_GPUS"])
    return gpus


def _figure(gpu: dict[str, Any], name: str) -> Any:
    if name not in gpu:
        raise NVMLError_NotSupported(name)
    return gpu[name]


def nvmlInit() -> None:
    global opened
    if os.environ["FAKE_GPUS"] == "no driver":
        raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")
    opened += 1


def nvmlShutdown() -> None:
    global opened
    opened -= 1


def nvmlSystemGetDriverVersion() -> str:
    return "580.95.05"


def nvmlDeviceGetCount() -> int:
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    gpu = _gpus()[index]
    if gpu.get("lost"):
        raise NVMLError_GpuIsLost("GPU is lost")
    return gpu


def nvmlDeviceGetHandleByUUID(uuid: str) -> dict[str, Any]:
    return next(gpu for gpu in _gpus() if gpu["uuid"] == uuid)


def nvmlDeviceGetUUID(gpu: dict[str, Any]) -> str:
    return str(gpu["uuid"])


def nvmlDeviceGetName(gpu: dict[str, Any]) -> str:
    return "NVIDIA H100 80GB HBM3"


def nvmlDeviceGetMemoryInfo(gpu: dict[str, Any], version: int) -> SimpleNamespace:
    total, used = _figure(gpu, "memory_mib")
    return SimpleNamespace(total=total << 20, used=used << 20)


def nvmlDeviceGetUtilizationRates(gpu: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(gpu=_figure(gpu, "utilization"))


def nvmlDeviceGetTemperature(gpu: dict[str, Any], sensor: int) -> int:
    return int(_figure(gpu, "temperature"))


def nvmlDeviceGetTotalEccErrors(gpu: dict[str, Any], kind: int, counter: int) -> int:
    return int(_figure(gpu, "errors"))


def nvmlDeviceGetComputeRunningProcesses(gpu: dict[str, Any]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid) for pid in gpu.get("pids", [])]
