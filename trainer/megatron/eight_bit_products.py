"""Products of layers' matrices in FP8: Transformer Engine's linear layers in the place of Megatron-core's own.

Invariant: parameters keep their names, shapes and precision, so that files and state are those of any other run; what
is rounded to eight bits is a copy for the product. Embedding, head, norms, attention and routers are computed as
without, and so are the projections of latent attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib.util import find_spec
from typing import Any

import torch

from weir.trainer.errors import TrainerUsageError
from weir.trainer.settings.megatron import MegatronSettings

OLDEST = {"tensorwise": (8, 9), "delayed": (8, 9), "blockwise": (9, 0), "mxfp8": (10, 0)}  # compute capability
Capability = tuple[int, int]


def check_installed(layout: MegatronSettings) -> None:
    """Raise `TrainerUsageError` where FP8 is asked for, and there is no Transformer Engine."""
    if layout.fp8 is not None and find_spec("transformer_engine") is None:
        raise TrainerUsageError(
            f'fp8 = "{layout.fp8}" of [trainer.megatron] computes with Transformer Engine, which is not installed: '
            "install transformer-engine[pytorch] for this CUDA, or remove fp8"
        )


def check_device(layout: MegatronSettings, device: torch.device) -> None:
    """Raise `TrainerUsageError` where a rank's device cannot compute in FP8."""
    check_installed(layout)
    check_capability(layout, torch.cuda.get_device_capability(device) if device.type == "cuda" else None)


def check_capability(layout: MegatronSettings, found: Capability | None) -> None:
    """Raise `TrainerUsageError` where a GPU of such a compute capability, or no GPU, cannot compute in FP8."""
    if layout.fp8 is None:
        return
    oldest = OLDEST[layout.fp8]
    if found is None or found < oldest:
        own = "this rank has no GPU" if found is None else f"this one has {found[0]}.{found[1]}"
        raise TrainerUsageError(
            f'fp8 = "{layout.fp8}" of [trainer.megatron] needs a GPU of compute capability {oldest[0]}.{oldest[1]}, '
            f"and {own}: choose another recipe, or remove fp8"
        )


def in_eight_bits(spec: Any) -> None:
    """Have a layer's matrices multiply in FP8."""
    from megatron.core.extensions.transformer_engine import TEColumnParallelLinear, TERowParallelLinear
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

    put_in_place(spec, {ColumnParallelLinear: TEColumnParallelLinear, RowParallelLinear: TERowParallelLinear})


def put_in_place(spec: Any, others: Mapping[Any, Any]) -> None:
    """Replace classes that a layer's specification names, at any depth, by others."""
    for name, value in list(vars(spec).items()):
        if isinstance(value, type) and value in others:
            setattr(spec, name, others[value])
        elif is_dataclass(value) and not isinstance(value, type):
            put_in_place(value, others)
