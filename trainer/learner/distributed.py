"""The processes that train one model together: who does which micro-batch, and what all of them know afterwards.

Invariant: the sum over all ranks of what they computed is what one process would have computed. All make the same
number of passes, as the collectives of sharded weights demand; a rank without a micro-batch of its own repeats one
with a weight of zero. Weights, gradients and optimiser state are sharded by FSDP2 (arXiv 2304.11277), gradients summed.
Weights are gathered in float32 and rounded where they are computed with, as in one process: gathered in bfloat16, the
residual stream is rounded too, and a gradient of two ranks was 5 % off that of one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard

PartT = TypeVar("PartT")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among `count`."""

    rank: int = 0
    count: int = 1

    @classmethod
    def of_torchrun(cls, device: torch.device) -> Ranks:
        """Join the processes that torchrun started beside this one, over NCCL on GPUs, else gloo."""
        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if on_gpu else "gloo")
        return cls(rank=dist.get_rank(), count=dist.get_world_size())

    def share(self, parts: Sequence[PartT]) -> list[tuple[PartT, bool]]:
        """The parts that are this rank's, and whether each counts; as many for every rank."""
        passes = -(-len(parts) // self.count)
        places = [self.rank + i * self.count for i in range(passes)]
        return [(parts[place], True) if place < len(parts) else (parts[0], False) for place in places]

    def gather(self, value: ValueT) -> list[ValueT]:
        """What each rank has, in their order."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, value)
        return found

    def shard(self, module: Any, layers: Sequence[torch.nn.Module]) -> None:
        """Spread a module's weights over the ranks, layer by layer."""
        if self.count == 1:
            return
        for part in (*layers, module):
            fully_shard(part)
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)  # losses are divided once, for the whole step
                part.set_force_sum_reduction_for_comms(True)
