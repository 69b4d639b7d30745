"""Ranks: the processes that train one model together, their shares of the micro-batches, and sharding by FSDP2.

Invariant: gradients summed over all ranks equal those of one process. All ranks make the same number of passes, as the
collectives of sharded weights require; a rank without a micro-batch left repeats one with weight zero. Weights,
gradients and optimiser state are sharded (FSDP2, arXiv 2304.11277). Weights are gathered in float32 and rounded in the
computation, as in one process: gathering in bfloat16 (`gather_precision`) also rounds the residual stream, which
changed gradients by 5 %. Gradients are summed over ranks in float32 in either case. With `replicas` the ranks make up
several copies of the sharded model (HSDP): weights are gathered within a copy, gradients summed over all of them. With
`context` neighbouring ranks get the same micro-batches, whose tokens they share (`model/context_ranks.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from weir.trainer.model.context_ranks import ContextRanks

PartT = TypeVar("PartT")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process's rank among `count` processes."""

    rank: int = 0
    count: int = 1
    gathers_half: bool = False  # weights are gathered in bfloat16; each rank's own rows stay float32
    offloads: bool = False  # weights, gradients and the optimiser stay in CPU memory, one process's as well
    mesh: DeviceMesh | None = None  # copies × ranks of a copy; None: all ranks hold one copy
    context: ContextRanks | None = None  # those that share this rank's micro-batches

    @classmethod
    def of_torchrun(cls, device: torch.device) -> Ranks:
        """Join torchrun's process group, over NCCL on GPUs, else gloo."""
        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if on_gpu else "gloo")
        return cls(rank=dist.get_rank(), count=dist.get_world_size())

    def dividing(
        self, device: torch.device, *, replicas: int, offloads: bool, gathers_half: bool = False, context: int = 1
    ) -> Ranks:
        """These ranks, which divide models and micro-batches so; a collective operation."""
        mesh = None
        if replicas > 1 or offloads:
            names = ("copies", "ranks")
            # what lies in CPU memory is summed over gloo, also where passes are computed on GPUs
            both = dict.fromkeys(names, "cpu:gloo,cuda:nccl") if offloads and device.type == "cuda" else None
            sizes = (replicas, self.count // replicas)
            mesh = init_device_mesh(device.type, sizes, mesh_dim_names=names, backend_override=both)  # type: ignore[arg-type]
        shared = None
        if context > 1:
            group, _ = dist.new_subgroups(group_size=context)  # type: ignore[no-untyped-call]
            shared = ContextRanks(rank=self.rank % context, count=context, group=group)
        return replace(self, gathers_half=gathers_half, offloads=offloads, mesh=mesh, context=shared)

    @property
    def shards(self) -> bool:
        """Whether models are sharded, each rank holding its own rows; one process alone may hold all of them."""
        return self.count > 1 or self.offloads

    @property
    def is_first_copy(self) -> bool:
        """Whether this rank's rows are those of the first copy of a model, which is the one that is written."""
        return self.mesh is None or self.rank < self.mesh.size(1)

    def home(self, device: torch.device) -> torch.device:
        """Where sharded weights are kept, if `device` computes with them."""
        return torch.device("cpu") if self.offloads else device

    @property
    def sharers(self) -> int:
        """Ranks that get the same parts."""
        return 1 if self.context is None else self.context.count

    def share(self, parts: Sequence[PartT]) -> list[tuple[PartT, bool]]:
        """This rank's parts, each with whether it counts; every rank gets the same number of parts."""
        shares = self.count // self.sharers
        passes = -(-len(parts) // shares)
        places = [self.rank // self.sharers + i * shares for i in range(passes)]
        return [(parts[place], True) if place < len(parts) else (parts[0], False) for place in places]

    def gather(self, value: ValueT) -> list[ValueT]:
        """The values of all ranks, by rank; a collective operation."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, value)
        return found

    def gather_shares(self, value: ValueT) -> list[ValueT]:
        """The values of all shares, each from the first of the ranks that have it; a collective operation."""
        return self.gather(value if self.rank % self.sharers == 0 else None)[:: self.sharers]  # type: ignore[return-value]

    def shard(self, module: Any, layers: Sequence[torch.nn.Module]) -> None:
        """Shard a module's weights over the ranks, layer by layer."""
        if not self.shards:
            return
        half = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
        how: dict[str, Any] = {
            "mesh": self._mesh_of_model(),
            "mp_policy": half if self.gathers_half else MixedPrecisionPolicy(),
            "offload_policy": CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
            if self.offloads
            else OffloadPolicy(),
        }
        for part in (*layers, module):
            fully_shard(part, **how)
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)  # losses are divided once, for the whole step
                part.set_force_sum_reduction_for_comms(True)

    def _mesh_of_model(self) -> DeviceMesh | None:
        """The mesh that torch shards over: of one dimension where there is one copy."""
        return self.mesh["ranks"] if self.mesh is not None and self.mesh.size(0) == 1 else self.mesh


def give_back_gathered(module: torch.nn.Module) -> None:
    """Have a sharded module's parameters be this rank's rows again: a pass without gradient leaves some gathered."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()
