"""The process groups of a layout: which rank computes what, and who speaks for several that compute the same.

Invariant: all ranks of one copy of the model (tensor, pipeline, context) get the same micro-batches, and of their
results only one rank's counts: the first of tensor and context ranks on the last pipeline stage.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

from weir.trainer.errors import TrainerUsageError
from weir.trainer.learner.distributed import Ranks
from weir.trainer.settings.megatron import MegatronSettings

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRanks(Ranks):
    """The copies of the model as ranks: `rank` is this process's copy, of `count`."""

    def gather(self, value: ValueT) -> list[ValueT]:
        """The values of the copies, each by the rank that speaks for it; a collective operation of all processes."""
        found = self.of_all((value if speaks() else None, speaks()))
        return [of_one for of_one, counts in found if counts]  # type: ignore[misc]

    def of_all(self, value: ValueT) -> list[ValueT]:
        """The values of all processes."""
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, value)
        return found


def speaks() -> bool:
    """Whether this process's results stand for its copy of the model."""
    return bool(
        parallel_state.is_pipeline_last_stage()
        and parallel_state.get_tensor_model_parallel_rank() == 0
        and parallel_state.get_context_parallel_rank() == 0
    )


def join(layout: MegatronSettings, device: torch.device) -> ModelRanks:
    """Join torchrun's processes into the groups of a layout, over NCCL on GPUs, else gloo.

    Raises `TrainerUsageError` where there is no CUDA device.
    """
    try:
        torch.cuda.current_device()
    except (AssertionError, RuntimeError) as error:
        raise TrainerUsageError(
            f"backend = megatron: Megatron-core computes on CUDA devices, and there is none here ({error}); use "
            "backend = torch"
        ) from error
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=layout.chunks if layout.chunks > 1 else None,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor,
        create_gloo_process_groups=False,
    )
    if device.type == "cuda":  # recomputed layers and divided tokens ask for random states, of which nothing draws
        model_parallel_cuda_manual_seed(0)
    return ModelRanks(rank=parallel_state.get_data_parallel_rank(), count=parallel_state.get_data_parallel_world_size())


def leave() -> None:
    """Leave the groups of the layout; `join` may follow with another one."""
    parallel_state.destroy_model_parallel()
