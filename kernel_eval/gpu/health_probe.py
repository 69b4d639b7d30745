"""`python -m weir.kernel_eval.gpu.health_probe`: whether the GPU that this process sees computes correctly.

The probe is a process of its own, so that a GPU that hangs blocks nothing else. It prints one JSON line: the
architecture, and whether sums over a buffer, a matrix product of integers and a copy to the host were correct.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any

import msgspec

from weir.kernel_eval.gpu import reset as gpu_reset
from weir.kernel_eval.gpu import status
from weir.kernel_eval.gpu.fleet import Gpu
from weir.kernel_eval.gpu.reset import GpuBusy
from weir.kernel_eval.gpu.status import GpuStatusError

_log = logging.getLogger(__name__)
_TIMEOUT_S = 60.0
_NUMBERS = 1 << 24


class Probed(msgspec.Struct, frozen=True):
    """The result of a probe."""

    well: bool
    target: str = ""
    why: str = ""


def probe() -> Probed:
    """Probe the GPU in this process, which gets a CUDA context."""
    import torch

    if torch.version.hip is not None or not torch.cuda.is_available():
        return Probed(False, why=f"torch {torch.__version__} finds no CUDA device")
    major, minor = torch.cuda.get_device_capability(0)
    numbers = torch.arange(_NUMBERS, dtype=torch.int64, device="cuda")
    ones = torch.ones(256, 256, device="cuda")
    sums = int(numbers.sum()) == _NUMBERS * (_NUMBERS - 1) // 2
    products = bool((ones @ ones == 256).all())
    copies = torch.equal(numbers.cpu(), torch.arange(_NUMBERS))
    why = "" if sums and products and copies else f"sums {sums}, products {products}, copies {copies}"
    return Probed(not why, f"sm_{major}{minor}", why)


async def run(uuid: str, command: tuple[str, ...] = ("-m", "weir.kernel_eval.gpu.health_probe")) -> Probed:
    """Probe one GPU in a new process. A probe that fails or hangs counts as unwell. Raises nothing."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", *command),
        env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            printed, _ = await process.communicate()
        return msgspec.json.decode(printed.splitlines()[-1] if printed else b"", type=Probed)
    except TimeoutError:
        return Probed(False, why=f"it did not answer within {_TIMEOUT_S:g} s")
    except msgspec.DecodeError:
        return Probed(False, why=f"its probe ended with {process.returncode}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def examine(gpu: Gpu) -> bool:
    """Whether its status is healthy and a probe succeeds. Raises nothing."""
    try:
        gpu_status = await asyncio.to_thread(status.find, gpu.index)
    except GpuStatusError:
        return False
    return gpu_status is not None and gpu_status.healthy and (await run(gpu.uuid)).well


async def reset(gpu: Gpu) -> bool:
    """Reset a GPU that no other process uses. Returns whether that worked; raises nothing."""
    try:
        gpu_status = await asyncio.to_thread(status.find, gpu.index)
        if gpu_status is not None:
            await asyncio.to_thread(gpu_reset.reset, gpu_status)
    except (GpuBusy, GpuStatusError):
        return False
    return gpu_status is not None


async def find_all(wanted: list[int] | None) -> list[Gpu]:
    """The GPUs of this machine that pass a probe, among the `wanted` numbers if given. Raises `GpuStatusError`."""
    statuses = await asyncio.to_thread(status.read)
    candidates = [s for s in statuses if (wanted is None or s.index in wanted) and _is_visible(s.index, s.uuid)]
    probed = await asyncio.gather(*(run(gpu.uuid) for gpu in candidates))
    for gpu, result in zip(candidates, probed, strict=True):
        if not result.well:
            _log.error("GPU %d (%s) is not used: %s", gpu.index, gpu.uuid, result.why)
    return [
        Gpu(gpu.index, gpu.uuid, gpu.name, gpu.driver, result.target)
        for gpu, result in zip(candidates, probed, strict=True)
        if result.well
    ]


def _is_visible(index: int, uuid: str) -> bool:
    """Whether CUDA_VISIBLE_DEVICES, which Ray sets for example, lets this process use a GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible is None or bool({str(index), uuid} & set(visible.split(",")))


def main() -> None:
    """Print the result as JSON."""
    result: Any = probe()
    print(json.dumps(msgspec.to_builtins(result)), flush=True)


if __name__ == "__main__":
    main()
