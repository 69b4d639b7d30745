"""The status of GPUs, read from a fake driver, and from the real one on a machine with a GPU."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from weir.kernel_eval.gpu import reset, status

FAKE = Path(__file__).parent / "fake_nvml" / "pynvml.py"
FULL = {"uuid": "GPU-1a", "memory_mib": [81559, 4], "utilization": 97, "temperature": 31, "errors": 0}


@pytest.fixture
def fake_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Puts the stand-in in NVML's place, with these GPUs."""

    def install(*gpus: dict[str, object]) -> ModuleType:
        spec = importlib.util.spec_from_file_location("fake_pynvml", FAKE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(status, "pynvml", module)
        monkeypatch.setenv("FAKE_GPUS", json.dumps(gpus) if gpus else "no driver")
        return module

    return install


def test_figures_are_read_in_mib_and_those_that_a_gpu_lacks_are_none(fake_gpus: Callable[..., ModuleType]) -> None:
    nvml = fake_gpus(FULL, {"uuid": "GPU-2b", "memory_mib": [24564, 1204], "utilization": 0})
    first, second = status.read()
    assert (first.index, first.uuid, first.name, first.driver) == (0, "GPU-1a", "NVIDIA H100 80GB HBM3", "580.95.05")
    assert (first.memory_total_mib, first.memory_used_mib, first.utilization_percent) == (81559, 4, 97)
    assert (first.temperature_c, first.uncorrected_errors) == (31, 0)
    assert (second.index, second.temperature_c, second.uncorrected_errors) == (1, None, None)
    assert first.healthy
    assert second.healthy
    assert nvml.opened == 0  # else no GPU could be reset


def test_a_gpu_with_uncorrected_errors_or_without_an_answer_is_not_healthy(
    fake_gpus: Callable[..., ModuleType],
) -> None:
    fake_gpus({**FULL, "errors": 2}, {"uuid": "GPU-2b"})
    assert [gpu.healthy for gpu in status.read()] == [False, False]


def test_a_machine_without_a_driver_has_no_gpus(fake_gpus: Callable[..., ModuleType]) -> None:
    fake_gpus()
    assert status.read() == []
    assert status.find(0) is None


def test_an_error_of_the_driver_is_raised_with_its_text(fake_gpus: Callable[..., ModuleType]) -> None:
    nvml = fake_gpus({**FULL, "lost": True})
    with pytest.raises(status.GpuStatusError, match="GPU is lost"):
        status.read()
    assert nvml.opened == 0


def test_a_driver_that_hangs_is_an_error(fake_gpus: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, never = fake_gpus(FULL), threading.Event()
    monkeypatch.setattr(nvml, "nvmlDeviceGetCount", never.wait)
    monkeypatch.setattr(status, "_TIMEOUT_S", 0.05)
    with pytest.raises(status.GpuStatusError, match="may have hung"):
        status.read()
    never.set()
    for thread in threading.enumerate():
        if thread.name == "nvml":
            thread.join()  # else it closes what the next test has opened


def test_a_gpu_that_a_process_computes_on_is_not_reset(fake_gpus: Callable[..., ModuleType]) -> None:
    fake_gpus({**FULL, "pids": [4242]})
    (gpu,) = status.read()
    with pytest.raises(reset.GpuBusy, match="4242"):
        reset.reset(gpu)


@pytest.mark.gpu
def test_the_driver_and_torch_agree_on_a_gpu() -> None:
    (gpu, *_) = status.read()
    properties = torch.cuda.get_device_properties(0)
    assert gpu.name == properties.name
    assert gpu.uuid.removeprefix("GPU-") == str(properties.uuid)
    assert gpu.memory_total_mib is not None
    assert gpu.memory_total_mib >= properties.total_memory >> 20
    assert gpu.healthy
