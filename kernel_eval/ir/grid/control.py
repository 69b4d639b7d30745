"""Runs blocks of operations: loops, branches and calls, in which programs may part ways and meet again.

All programs of a chunk run the same operation at the same time. Where they part, each side runs under a mask of its
programs, and values are merged where they meet.
"""

from __future__ import annotations

import numpy as np
import torch

from weir.kernel_eval.ir.errors import KernelFault, LimitExceeded, Malformed, Unsupported
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.values import Affine, Lanes, Value, merge, scalars_of
from weir.kernel_eval.ir.module import PIPELINED, Block, Operation, Region

TERMINATORS = frozenset(
    [
        *("scf.yield", "scf.condition", "tt.return", "cf.br", "cf.cond_br"),
        *("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"),
    ]
)
_SPIN_ITERATIONS = 1000
_READS = frozenset({"tt.load", "tt.atomic_rmw", "tt.atomic_cas", "tt.call", "tt.descriptor_load"})


def execute(frame: Frame, block: Block, handlers: dict[str, Handler]) -> Operation | None:
    """Run a block up to the operation that leaves it, which is returned."""
    values, spend = frame.values, frame.machine.spend
    for operation in block.operations:
        name = operation.name
        if name in TERMINATORS:
            return operation
        spend()
        result = handlers[name](frame, operation)
        results = operation.results
        if len(results) == 1:
            values[results[0]] = result[0] if isinstance(result, tuple | list) else result
        elif results:
            for number, value in zip(results, result, strict=True):
                values[number] = value
        for number in operation.dead:
            values[number] = None
    return None


def _reads_memory(region: Region) -> bool:
    """Whether a region holds a load or an atomic operation, for whose value another program may be responsible."""
    return any(
        operation.name in _READS or any(_reads_memory(inner) for inner in operation.regions)
        for block in region.blocks
        for operation in block.operations
    )


def enter(frame: Frame, region: Region, arguments: list[Value], handlers: dict[str, Handler]) -> list[Value]:
    """Run a region of one block with arguments; the values that it ends with. Raises Malformed."""
    block = region.blocks[0]
    if len(block.arguments) != len(arguments):
        raise Malformed("a region is entered with another number of values than it takes")
    for number, value in zip(block.arguments, arguments, strict=True):
        frame.values[number] = value
    end = execute(frame, block, handlers)
    return [] if end is None else [frame.value(number) for number in end.operands]


def _everywhere(mask: torch.Tensor | None, outer: torch.Tensor | None) -> tuple[torch.Tensor | None, bool]:
    """A mask within the outer one, None if all of the outer programs are in it; and whether any is."""
    if mask is None:
        return outer, True
    inner = mask if outer is None else mask & outer
    if torch.equal(inner, outer) if outer is not None else bool(inner.all()):
        return outer, True
    return inner, bool(inner.any())


def _condition(frame: Frame, number: int) -> torch.Tensor | bool:
    """One truth for all active programs, or (lanes,) of each."""
    condition = frame.tensor(number).reshape(-1)
    if condition.numel() == 1:
        return bool(condition)
    considered = condition if frame.active is None else condition[frame.active]
    if bool(considered.all()):
        return True
    return condition if bool(considered.any()) else False


class Control:
    """Handlers that run regions with all handlers."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        self._all = handlers

    def if_(self, frame: Frame, operation: Operation) -> list[Value]:
        """scf.if."""
        condition = _condition(frame, operation.operands[0])
        regions = operation.regions
        if isinstance(condition, bool):
            if condition:
                return enter(frame, regions[0], [], self._all)
            return enter(frame, regions[1], [], self._all) if len(regions) > 1 else []
        outer = frame.active
        sides = []
        for region, mask in zip(regions, (condition, ~condition), strict=False):
            frame.active = mask if outer is None else mask & outer
            sides.append(enter(frame, region, [], self._all))
        frame.active = outer
        if len(sides) == 1:
            return []
        kinds = [frame.types[number] for number in operation.results]
        return [merge(condition, new, old, kind) for new, old, kind in zip(*sides, kinds, strict=True)]

    def for_(self, frame: Frame, operation: Operation) -> list[Value]:
        """scf.for: bounds and step are signed."""
        if PIPELINED not in operation.attributes:
            return self._loop(frame, operation)
        frame.machine.memory.begin_loop()
        try:
            return self._loop(frame, operation)
        finally:
            frame.machine.memory.end_loop()

    def _loop(self, frame: Frame, operation: Operation) -> list[Value]:
        low, high, step = (scalars_of(frame.value(number)) for number in operation.operands[:3])
        carried = [frame.value(number) for number in operation.operands[3:]]
        if frame.active is None and len(low.base) == len(high.base) == len(step.base) == 1:
            first, last, by = int(low.base[0]), int(high.base[0]), int(step.base[0])
            self._check_step(by > 0)
            numbers = range(first, last, by)
            self._check_iterations(frame, len(numbers))
            for number in numbers:
                counter = Affine(np.array([number], dtype=np.int64), (), ())
                carried = enter(frame, operation.regions[0], [counter, *carried], self._all)
            return carried
        return self._for_each(frame, operation, (low.base, high.base, step.base), carried)

    def _check_step(self, positive: bool) -> None:
        if not positive:
            raise LimitExceeded("max_iterations", "a loop whose step is not positive does not end")

    def _check_iterations(self, frame: Frame, iterations: int) -> None:
        if iterations > frame.machine.limits.max_iterations:
            raise LimitExceeded(
                "max_iterations", f"a loop of more than {frame.machine.limits.max_iterations} iterations"
            )

    def _for_each(
        self, frame: Frame, operation: Operation, bounds: tuple[Lanes, Lanes, Lanes], carried: list[Value]
    ) -> list[Value]:
        outer = frame.active
        running = np.ones(frame.lanes, dtype=bool) if outer is None else outer.numpy()
        low, high, step = (np.broadcast_to(bound, frame.lanes) for bound in bounds)
        self._check_step(bool((step[running] > 0).all()))
        step = np.maximum(step, 1)
        iterations = np.where(running, np.maximum(-((low - high) // step), 0), 0)
        self._check_iterations(frame, int(iterations.max()))
        kinds = [frame.types[number] for number in operation.results]
        for iteration in range(int(iterations.max())):
            inside = torch.from_numpy(iteration < iterations)
            frame.active, _ = _everywhere(inside, outer)
            counter = Affine(np.where(inside.numpy(), low + iteration * step, low), (), ())
            after = enter(frame, operation.regions[0], [counter, *carried], self._all)
            if frame.active is not None:
                mask = frame.active
                carried = [merge(mask, new, old, kind) for new, old, kind in zip(after, carried, kinds, strict=True)]
            else:
                carried = after
        frame.active = outer
        return carried

    def while_(self, frame: Frame, operation: Operation) -> list[Value]:
        """scf.while. Raises LimitExceeded, Malformed, Unsupported."""
        before, after = operation.regions
        outer = frame.active
        carried = [frame.value(number) for number in operation.operands]
        kinds = [frame.types[number] for number in operation.operands]
        result_kinds = [frame.types[number] for number in operation.results]
        results: list[Value] | None = None
        limit = min(frame.machine.limits.max_iterations, _SPIN_ITERATIONS if not carried else 1 << 62)
        for _ in range(limit):
            block = before.blocks[0]
            for number, value in zip(block.arguments, carried, strict=True):
                frame.values[number] = value
            end = execute(frame, block, self._all)
            if end is None or end.name != "scf.condition":
                raise Malformed("scf.while needs a condition")
            given = [frame.value(number) for number in end.operands[1:]]
            # the results of a program are what it gave last
            if results is None or frame.active is None:
                results = given
            else:
                mask = frame.active
                results = [
                    merge(mask, new, old, kind) for new, old, kind in zip(given, results, result_kinds, strict=True)
                ]
            condition = _condition(frame, end.operands[0])
            if condition is False:
                frame.active = outer
                return results
            if not isinstance(condition, bool):
                frame.active = condition if frame.active is None else condition & frame.active
            next_ = enter(frame, after, given, self._all)
            if frame.active is None:
                carried = next_
            else:
                mask = frame.active
                carried = [merge(mask, new, old, kind) for new, old, kind in zip(next_, carried, kinds, strict=True)]
        if not carried and _reads_memory(before):
            raise Unsupported("deadlock", "a loop waits for something that no other program does meanwhile")
        raise LimitExceeded("max_iterations", f"a loop of more than {limit} iterations")

    def call(self, frame: Frame, operation: Operation) -> list[Value]:
        """tt.call. Raises LimitExceeded, Malformed."""
        function = frame.machine.module.functions.get(operation.attributes["callee"])
        if function is None:
            raise Malformed("a call of a function that is not in the module")
        given = tuple(frame.types[number] for number in operation.operands)
        wanted = tuple(function.types[number] for number in function.parameters)
        if given != wanted or tuple(frame.types[number] for number in operation.results) != function.results:
            raise Malformed("a call with other types than the function has")
        if frame.depth >= frame.machine.limits.max_calls:
            raise LimitExceeded("max_calls", f"more than {frame.machine.limits.max_calls} calls inside each other")
        inner = Frame(frame.machine, function, frame.lanes, frame.active, frame.depth + 1)
        return self.body(inner, [frame.value(number) for number in operation.operands])

    def body(self, frame: Frame, arguments: list[Value]) -> list[Value]:
        """Run a whole function; its results."""
        region = frame.function.body
        if len(region.blocks) == 1:
            return enter(frame, region, arguments, self._all)
        for number, value in zip(frame.function.parameters, arguments, strict=True):
            frame.values[number] = value
        return _Blocks(frame, self._all).run()


class _Blocks:
    """The blocks of a function that branches forward: each runs once, for the programs that come to it."""

    def __init__(self, frame: Frame, handlers: dict[str, Handler]) -> None:
        self._frame = frame
        self._handlers = handlers
        self._blocks = {block.label: at for at, block in enumerate(frame.function.body.blocks)}
        everyone = torch.ones(frame.lanes, dtype=torch.bool) if frame.active is None else frame.active
        self._arriving: dict[int, torch.Tensor] = {0: everyone}
        self._results: list[Value] | None = None

    def run(self) -> list[Value]:
        frame = self._frame
        outer = frame.active
        for at, block in enumerate(frame.function.body.blocks):
            mask = self._arriving.pop(at, None)
            if mask is None or not bool(mask.any()):
                continue
            frame.active = None if bool(mask.all()) else mask
            end = execute(frame, block, self._handlers)
            if end is None:
                raise Malformed("a block does not end")
            self._leave(at, end, mask)
        frame.active = outer
        return self._results or []

    def _leave(self, at: int, end: Operation, mask: torch.Tensor) -> None:
        frame = self._frame
        if end.name == "tt.return":
            given = [frame.value(number) for number in end.operands]
            kinds = [frame.types[number] for number in end.operands]
            known = self._results
            self._results = (
                given
                if known is None
                else [merge(mask, new, old, kind) for new, old, kind in zip(given, known, kinds, strict=True)]
            )
        elif end.name == "cf.br":
            self._branch(at, end.successors[0], mask)
        elif end.name == "cf.cond_br":
            condition = frame.tensor(end.operands[0]).reshape(-1)
            self._branch(at, end.successors[0], mask & condition)
            self._branch(at, end.successors[1], mask & ~condition)
        else:
            raise Malformed(f"{end.name} ends no block of a function")

    def _branch(self, at: int, successor: tuple[str, tuple[int, ...]], mask: torch.Tensor) -> None:
        frame = self._frame
        target = self._blocks.get(successor[0])
        if target is None:
            raise Malformed("a branch to a block that does not exist")
        if target <= at:
            raise Unsupported("cf.br backwards", "loops are scf.for and scf.while")
        arguments = frame.function.body.blocks[target].arguments
        if [frame.types[number] for number in arguments] != [frame.types[number] for number in successor[1]]:
            raise Malformed("a branch with other values than its block takes")
        for number, source in zip(arguments, successor[1], strict=True):
            old, new = frame.values[number], frame.value(source)
            frame.values[number] = new if old is None else merge(mask, new, old, frame.types[number])
        known = self._arriving.get(target)
        self._arriving[target] = mask if known is None else known | mask


def _program_id(frame: Frame, operation: Operation) -> Affine:
    grid, axis = frame.machine.grid, operation.attributes["axis"]
    if operation.name == "tt.get_num_programs":
        return Affine(np.array([grid[axis]], dtype=np.int64), (), ())
    if grid[axis] == 1:
        return Affine(np.zeros(1, dtype=np.int64), (), ())
    below = (1, grid[0], grid[0] * grid[1])[axis]
    return Affine(frame.machine.programs // below % grid[axis], (), ())


def _assert(frame: Frame, operation: Operation) -> None:
    condition = frame.tensor(operation.operands[0])
    if frame.active is not None:
        condition = condition | ~frame.active.view(-1, *([1] * (condition.dim() - 1)))
    if not bool(condition.all()):
        raise KernelFault("assertion", f"an assertion of the kernel fails (line {operation.line} of its IR)")


def _barrier(frame: Frame, operation: Operation) -> None:
    frame.machine.memory.barrier(frame.active)


def _print(frame: Frame, operation: Operation) -> None:
    """Nothing is ever printed."""


HANDLERS: dict[str, Handler] = {
    "tt.get_program_id": _program_id,
    "tt.get_num_programs": _program_id,
    "tt.assert": _assert,
    **dict.fromkeys(("ttg.barrier", "ttg.local_barrier", "gpu.barrier"), _barrier),
    "tt.print": _print,
}
