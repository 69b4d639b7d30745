"""`python -m weir.kernel_eval.gpu.health_probe`: does the GPU that this process sees compute what it should?

A process of its own, so that a GPU that hangs takes nobody with it. It prints one JSON line: the architecture, and
whether sums over all of a buffer, a matrix product of integers and a copy to the host came out as they must.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any

import msgspec

from weir.kernel_eval.gpu import nvidia_smi
from weir.kernel_eval.gpu.fleet import Gpu

_log = logging.getLogger(__name__)
_TIMEOUT_S = 60.0
_NUMBERS = 1 << 24


class Probed(msgspec.Struct, frozen=True):
    """What a probe found."""

    well: bool
    target: str = ""
    why: str = ""


def probe() -> Probed:
    """In the process of its own. Makes CUDA's context."""
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
    """Start a probe of one GPU, and hear what it found; one that fails or hangs is unwell. Raises nothing."""
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
    """Whether nvidia-smi and a probe find it well."""
    try:
        status = await asyncio.to_thread(nvidia_smi.find, gpu.index)
    except nvidia_smi.GpuStatusError:
        return False
    return status is not None and status.healthy and (await run(gpu.uuid)).well


async def reset(gpu: Gpu) -> bool:
    """Reset it, where nobody else uses it; whether that worked."""
    try:
        status = await asyncio.to_thread(nvidia_smi.find, gpu.index)
        if status is not None:
            await asyncio.to_thread(nvidia_smi.reset, status)
    except (nvidia_smi.GpuBusy, nvidia_smi.GpuStatusError):
        return False
    return status is not None


async def find_all(wanted: list[int] | None) -> list[Gpu]:
    """The GPUs of this machine that compute, or those of the given numbers. Raises `GpuStatusError`."""
    statuses = await asyncio.to_thread(nvidia_smi.read)
    asked = [s for s in statuses if (wanted is None or s.index in wanted) and _is_visible(s.index, s.uuid)]
    probed = await asyncio.gather(*(run(status.uuid) for status in asked))
    for status, found in zip(asked, probed, strict=True):
        if not found.well:
            _log.error("GPU %d (%s) is not used: %s", status.index, status.uuid, found.why)
    return [
        Gpu(status.index, status.uuid, status.name, status.driver, found.target)
        for status, found in zip(asked, probed, strict=True)
        if found.well
    ]


def _is_visible(index: int, uuid: str) -> bool:
    """Whether whoever started this process lets it use that GPU, as Ray does by this variable."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible is None or bool({str(index), uuid} & set(visible.split(",")))


def main() -> None:
    """Print what was found."""
    found: Any = probe()
    print(json.dumps(msgspec.to_builtins(found)), flush=True)


if __name__ == "__main__":
    main()
