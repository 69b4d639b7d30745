"""The part of each parameter whose float32 weights and moments this rank keeps and steps, in the distributed optimiser.

Invariant: of the ranks that hold the same part of a parameter (its data-parallel group), each owns a range of it, taken
as one row of numbers, and together they own all of it. `whole` puts the ranges together bit for bit. With
`optimizer_offload_fraction` an optimiser of Megatron-core's holds others, one for the device and one for each range in
CPU memory, and float32 weights of their own besides those that it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.optimizer.cpu_offloading import HybridDeviceOptimizer

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedShard:
    """Numbers `start` to `stop` of a parameter; `main` are their float32 weights."""

    parameter: torch.nn.Parameter
    start: int
    stop: int
    main: torch.Tensor
    optimizer: torch.optim.Optimizer

    @property
    def state(self) -> dict[str, Any]:
        """The optimiser's state of these numbers; empty before the first step."""
        found: dict[str, Any] = self.optimizer.state[self.main]
        return found

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of the parameter that hold these numbers."""
        width = self.parameter[0].numel()
        return self.start // width, -(-self.stop // width)

    def of_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """These numbers, of the rows that hold them."""
        first = self.rows[0] * self.parameter[0].numel()
        return rows.flatten()[self.start - first : self.stop - first]


def owned_shards(optimizer: Any) -> Iterator[OwnedShard]:
    """What this rank owns, in Megatron-core's chain of optimisers."""
    for one in optimizer.chained_optimizers:
        steps = {main: each for each in _steppers(one.optimizer) for of in each.param_groups for main in of["params"]}
        for parameter, (group, at) in one.model_param_group_index_map.items():
            own = one._get_model_param_range_map(parameter)["param"]
            given = one.optimizer.param_groups[group]["params"][at]
            main = _stepped(one.optimizer).get(given, given)
            yield OwnedShard(parameter=parameter, start=own.start, stop=own.end, main=main, optimizer=steps[main])


def _steppers(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """The optimisers that step the weights of one."""
    found: list[torch.optim.Optimizer]
    found = optimizer.sub_optimizers if isinstance(optimizer, HybridDeviceOptimizer) else [optimizer]
    return found


def _stepped(optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, torch.Tensor]:
    """The float32 weights that are stepped, by those that an optimiser was given, where these are others."""
    found: dict[torch.Tensor, torch.Tensor]
    found = optimizer.param_to_inner_param if isinstance(optimizer, HybridDeviceOptimizer) else {}
    return found


def groups_of(optimizer: Any) -> dict[torch.nn.Parameter, Any]:
    """The ranks that own the ranges of each parameter."""
    return {
        parameter: one.data_parallel_group
        for one in optimizer.chained_optimizers
        for buffer in one.buffers
        for parameter in buffer.params
    }


def whole(parameter: torch.Tensor, own: tuple[OwnedShard, torch.Tensor] | None, group: Any) -> torch.Tensor:
    """float32 numbers of the parameter's shape, of which this rank brings its own; a collective of the group."""
    bits = torch.zeros(parameter.numel(), dtype=torch.int32, device=parameter.device)
    if own is not None:
        shard, numbers = own
        bits[shard.start : shard.stop] = numbers.detach().to(parameter.device).contiguous().view(torch.int32)
    dist.all_reduce(bits, group=group)  # of all but one these are zero bits
    return bits.view(torch.float32).view(parameter.shape)


@torch.no_grad()
def synchronise(optimizer: Any) -> None:
    """Give the model's parameters the weights of all owners."""
    for one in optimizer.chained_optimizers:
        for given, main in _stepped(one.optimizer).items():
            given.copy_(main)
        one._copy_main_params_to_model_params()
        for chunk in one.model_chunks:
            chunk.start_param_sync()
