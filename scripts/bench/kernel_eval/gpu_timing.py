"""`weir bench kernel-eval --gpu`: the precision of kernel timings on this machine's GPU.

Several kernels of torch are measured repeatedly by the protocol of `sampling.py` and `cuda_clock.py`. Reported are the
coefficient of variation within a measurement (`cv`), and that of the medians of repeated ones (`median_cv`).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any

import torch

from weir.kernel_eval.gpu import status as gpu_status
from weir.kernel_eval.gpu.device_lock import gpu_lock
from weir.kernel_eval.timing import sampling
from weir.kernel_eval.timing.cuda_clock import GpuClock, fresh_calls
from weir.scripts.launch.errors import NoDevice

_REPEATS = 5
_LONG_US = 20.0  # shorter kernels are reported, but do not count for the maxima


def main(device: int = 0) -> None:
    """Print a line for each kernel, and one JSON object at the end. Raises `NoDevice` without a GPU."""
    if not torch.cuda.is_available():
        raise NoDevice(
            f"torch {torch.__version__} finds no CUDA device; run this on a machine with a GPU and torch's CUDA build"
        )
    status = gpu_status.find(device)
    uuid = status.uuid if status else str(device)
    with gpu_lock(uuid), torch.no_grad():
        kernels = {name: _repeat(device, *kernel) for name, kernel in _kernels(device).items()}
    for name, row in kernels.items():
        print(f"{name:16} {row['median_us']:9.1f} us   cv {row['cv']:.4f}   median_cv {row['median_cv']:.4f}")
    long = [row for row in kernels.values() if row["median_us"] > _LONG_US]
    print(
        json.dumps(
            {
                "gpu": torch.cuda.get_device_name(device),
                "driver": status.driver if status else None,
                "torch": torch.__version__,
                "cv_max": max((row["cv"] for row in long), default=None),
                "median_cv_max": max((row["median_cv"] for row in long), default=None),
                "kernels": kernels,
            }
        )
    )


def _repeat(device: int, function: Callable[..., object], make_inputs: Callable[[], list[Any]]) -> dict[str, float]:
    clock = GpuClock(device)
    call = fresh_calls(clock, function, make_inputs)
    measured = [sampling.measure([call], seed)[0] for seed in range(_REPEATS)]
    return {
        "median_us": round(statistics.median(one.median_us for one in measured), 2),
        "cv": round(max(one.variation for one in measured), 5),
        "median_cv": round(sampling.summarize([one.median_us for one in measured]).variation, 5),
        "num_calls": sum(one.num_calls for one in measured),
    }


def _kernels(device: int) -> dict[str, tuple[Callable[..., object], Callable[[], list[Any]]]]:
    def floats(*shape: int) -> Callable[[], list[Any]]:
        return lambda: [torch.randn(shape, device=f"cuda:{device}")]

    def pair(*shape: int) -> Callable[[], list[Any]]:
        return lambda: [torch.randn(shape, device=f"cuda:{device}") for _ in range(2)]

    return {
        "relu_small": (torch.relu, floats(1 << 16)),
        "relu_large": (torch.relu, floats(1 << 26)),
        "softmax": (lambda x: torch.softmax(x, dim=-1), floats(8192, 4096)),
        "sum": (torch.sum, floats(1 << 26)),
        "matmul": (torch.matmul, pair(2048, 2048)),
    }
