"""What is known while operations run: the values of a function, the programs that are active, the machine's limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from weir.kernel_eval.ir.errors import LimitExceeded, Malformed
from weir.kernel_eval.ir.grid.memory import Memory
from weir.kernel_eval.ir.grid.report import Counts
from weir.kernel_eval.ir.grid.values import Lanes, Value, dense
from weir.kernel_eval.ir.limits import RunLimits
from weir.kernel_eval.ir.module import Function, Module, Operation
from weir.kernel_eval.ir.types import Type

_STEPS_BETWEEN_CHECKS = 32


class Machine:
    """One launch: its memory, limits and counts. `programs` are the numbers of the programs of this chunk."""

    def __init__(self, module: Module, grid: tuple[int, int, int], memory: Memory, limits: RunLimits) -> None:
        self.module = module
        self.grid = grid
        self.memory = memory
        self.limits = limits
        self.counts = Counts()
        self.steps = 0
        self.num_programs = grid[0] * grid[1] * grid[2]
        self.programs: Lanes = np.zeros(1, dtype=np.int64)
        self._shuffle = torch.Generator().manual_seed(limits.order) if limits.order else None
        self._end_s = time.thread_time() + limits.cpu_s

    def order(self, count: int) -> torch.Tensor | None:
        """The order in which (count,) programs or elements go, or None for that of their numbers.

        The first is not the first, nor the last the last: a kernel may need no more than one of the two.
        """
        if self._shuffle is None:
            return None
        order = torch.randperm(count, generator=self._shuffle)
        stays = count > 1 and (int(order[0]) == 0 or int(order[-1]) == count - 1)
        return order.flip(0) if stays else order

    def spend(self, steps: int = 1) -> None:
        """Count operations. Raises LimitExceeded when the launch takes too long."""
        self.steps += steps
        if self.steps > self.limits.max_steps:
            raise LimitExceeded("max_steps", f"a launch of more than {self.limits.max_steps} steps")
        if self.steps % _STEPS_BETWEEN_CHECKS == 0 and time.thread_time() > self._end_s:
            raise LimitExceeded("cpu_s", f"a launch took more than {self.limits.cpu_s} s of CPU time")


class Frame:
    """A call of a function by all programs of a chunk, or a region that runs over the elements of tensors.

    lanes: how many programs (or elements) run together · active: (lanes,) bool, or None if all run.
    """

    __slots__ = ("active", "depth", "function", "lanes", "machine", "types", "values")

    def __init__(
        self, machine: Machine, function: Function, lanes: int, active: torch.Tensor | None, depth: int
    ) -> None:
        self.machine = machine
        self.function = function
        self.types = function.types
        self.values: list[Value | None] = [None] * len(function.types)
        self.lanes = lanes
        self.active = active
        self.depth = depth

    def value(self, number: int) -> Value:
        """A value. Raises Malformed if the way here did not pass its definition."""
        value = self.values[number]
        if value is None:
            raise Malformed("a value is used that was not computed on the way here")
        return value

    def tensor(self, number: int) -> torch.Tensor:
        """A value as a tensor, with 1 for axes along which it does not vary."""
        return dense(self.value(number), self.types[number])

    def tensors(self, operation: Operation) -> list[torch.Tensor]:
        """All operands as tensors."""
        return [self.tensor(operand) for operand in operation.operands]

    def kind(self, operation: Operation, at: int = 0) -> Type:
        """The type of an operand."""
        return self.types[operation.operands[at]]

    def result_kind(self, operation: Operation, at: int = 0) -> Type:
        """The type of a result."""
        return self.types[operation.results[at]]


Handler = Callable[[Frame, Operation], Any]
