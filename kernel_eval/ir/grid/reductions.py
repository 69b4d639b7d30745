"""tt.reduce, tt.scan and tt.map_elementwise: regions that run over all elements at once.

A region of scalars runs as a frame whose lanes are elements. A device combines the elements of a reduction in an order
that its compiler chooses: those that a thread holds one after the other, then those of other threads, the furthest
first, and each thread may keep a result of its own. So an operator has to be associative and to commute. With
`order` 0 of the limits neighbours are combined first, in a balanced tree; otherwise the elements are turned round, four
that lie apart are combined one after the other, and then halves. A scan keeps the order of its elements, so that its
operator has only to be associative: the second way goes through groups of four one after the other. Sums, maxima and
minima of one operand have a faster way.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from weir.kernel_eval.ir.errors import Malformed, Unsupported
from weir.kernel_eval.ir.grid.control import enter
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.values import Affine, Value, dense, expanded
from weir.kernel_eval.ir.module import Operation, Region
from weir.kernel_eval.ir.types import Type, element_of, shape_of

_IN_REGIONS = (
    "arith.",
    "math.",
    "scf.",
    "ub.",
    "tt.extern_elementwise",
    "tt.clampf",
    "tt.fp_to_fp",
    "tt.bitcast",
    "tt.call",
)
_HELD = 4  # neighbouring elements that a thread holds
_MORE_IN_REGIONS = frozenset(
    [
        "tt.mulhiui",
        "tt.precise_divf",
        "tt.precise_sqrt",
        "tt.reduce.return",
        "tt.scan.return",
        "tt.map_elementwise.return",
    ]
)


def _operator(region: Region) -> str | None:
    """The operation of a region that is only `op(a, b)` or `op(b, a)` of its two arguments."""
    block = region.blocks[0]
    if len(region.blocks) != 1 or len(block.operations) != 2 or len(block.arguments) != 2:
        return None
    operation, end = block.operations
    whole = sorted(operation.operands) == sorted(block.arguments) and end.operands == operation.results
    return operation.name if whole else None


def _sum(value: torch.Tensor) -> torch.Tensor:
    return value.sum(dim=1, dtype=value.dtype)


def _float_maximum(value: torch.Tensor) -> torch.Tensor:
    result = value.amax(dim=1)
    return _without_nan(value, result, -torch.inf, torch.Tensor.amax)


def _float_minimum(value: torch.Tensor) -> torch.Tensor:
    result = value.amin(dim=1)
    return _without_nan(value, result, torch.inf, torch.Tensor.amin)


def _without_nan(
    value: torch.Tensor, result: torch.Tensor, neutral: float, function: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """maxnumf and minnumf ignore NaN, unless there is nothing else."""
    if not bool(torch.isnan(result).any()):
        return result
    missing = torch.isnan(value)
    cleaned: torch.Tensor = function(torch.where(missing, neutral, value), dim=1)
    return torch.where(missing.all(dim=1), torch.nan, cleaned)


_FAST_FLOAT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "arith.addf": _sum,
    "arith.maxnumf": _float_maximum,
    "arith.minnumf": _float_minimum,
    "arith.maximumf": lambda value: value.amax(dim=1),
    "arith.minimumf": lambda value: value.amin(dim=1),
}
_FAST_INTEGER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "arith.addi": _sum,
    "arith.maxsi": lambda value: value.amax(dim=1),
    "arith.minsi": lambda value: value.amin(dim=1),
}


def _fast(name: str | None, value: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """A function of (programs, axis, rest): 16-bit sums are left to the tree, which rounds at each step."""
    if name is None or value.dtype in (torch.bool, torch.uint8):
        return None
    if not value.is_floating_point():
        return _FAST_INTEGER.get(name)
    if name == "arith.addf" and value.element_size() == 2:
        return None
    return _FAST_FLOAT.get(name)


class Combining:
    """Handlers that run regions over elements with all handlers."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        self._all = handlers

    def _operands(self, frame: Frame, operation: Operation) -> list[torch.Tensor]:
        """All elements of all operands, over the same programs."""
        values = [expanded(frame.tensor(number), shape_of(frame.types[number])) for number in operation.operands]
        lanes = max(value.shape[0] for value in values)
        return [value.expand(lanes, *value.shape[1:]) for value in values]

    def reduce(self, frame: Frame, operation: Operation) -> tuple[Value, ...]:
        """tt.reduce."""
        axis = operation.attributes["axis"] + 1
        values = self._operands(frame, operation)
        frame.machine.counts.flops += sum(value.numel() for value in values)
        if values[0].shape[axis] == 1:
            return tuple(value.squeeze(axis) for value in values)
        if len(values) == 1:
            fast = _fast(_operator(operation.regions[0]), values[0])
            if fast is not None:
                value = values[0].movedim(axis, 1)
                return (fast(value.flip(1) if frame.machine.limits.order and fast is _sum else value),)
        moved = [value.movedim(axis, 0) for value in values]  # (axis, programs, rest)
        if frame.machine.limits.order:
            moved = self._folded(frame, operation, [value.flip(0) for value in moved])
        else:
            while moved[0].shape[0] > 1:
                left, right = ([value[first::2] for value in moved] for first in (0, 1))
                moved = self._combine(frame, operation, left, right)
        return tuple(value[0] for value in moved)

    def _folded(self, frame: Frame, operation: Operation, moved: list[torch.Tensor]) -> list[torch.Tensor]:
        """One element: of four that lie a quarter apart, one after the other, then of halves."""
        size = moved[0].shape[0]
        step = max(1, size // _HELD)
        parts = [[value[start : start + step] for value in moved] for start in range(0, size, step)]
        folded = parts[0]
        for part in parts[1:]:
            folded = self._combine(frame, operation, folded, part)
        while (half := folded[0].shape[0] // 2) > 0:
            folded = self._combine(
                frame, operation, [value[:half] for value in folded], [value[half:] for value in folded]
            )
        return folded

    def scan(self, frame: Frame, operation: Operation) -> tuple[Value, ...]:
        """tt.scan: inclusive, from the end if `reverse`."""
        axis = operation.attributes["axis"] + 1
        values = self._operands(frame, operation)
        frame.machine.counts.flops += sum(value.numel() for value in values)
        backwards = operation.attributes.get("reverse", False)
        moved = [value.movedim(axis, 0) for value in values]
        if backwards:
            moved = [value.flip(0) for value in moved]
        name = _operator(operation.regions[0])
        first = moved[0]
        if (
            len(moved) == 1
            and name in ("arith.addf", "arith.addi")
            and (first.dtype in (torch.float32, torch.float64) or (name == "arith.addi" and first.dtype != torch.bool))
        ):
            moved = [torch.cumsum(first, dim=0, dtype=first.dtype)]
        elif frame.machine.limits.order and first.shape[0] > _HELD:
            moved = self._scan_groups(frame, operation, moved)
        else:
            moved = self._scan(frame, operation, moved)
        if backwards:
            moved = [value.flip(0) for value in moved]
        return tuple(value.movedim(0, axis) for value in moved)

    def _scan(self, frame: Frame, operation: Operation, moved: list[torch.Tensor]) -> list[torch.Tensor]:
        """Hillis and Steele: in step n each element is combined with the one 2**n before it."""
        distance, size = 1, moved[0].shape[0]
        while distance < size:
            combined = self._combine(
                frame, operation, [value[:-distance] for value in moved], [value[distance:] for value in moved]
            )
            moved = [torch.cat([old[:distance], new]) for old, new in zip(moved, combined, strict=True)]
            distance *= 2
        return moved

    def _scan_groups(self, frame: Frame, operation: Operation, moved: list[torch.Tensor]) -> list[torch.Tensor]:
        """Groups of four neighbours one after the other, then the last elements of groups, then the two combined."""
        columns = [[value[place::_HELD] for value in moved] for place in range(_HELD)]  # (groups, programs, rest)
        for place in range(1, _HELD):
            columns[place] = self._combine(frame, operation, columns[place - 1], columns[place])
        before = [value[:-1] for value in self._scan(frame, operation, columns[-1])]
        whole = [
            [
                torch.cat([own[:1], new])
                for own, new in zip(
                    column, self._combine(frame, operation, before, [value[1:] for value in column]), strict=True
                )
            ]
            for column in columns
        ]
        return [torch.stack(parts, dim=1).flatten(0, 1) for parts in zip(*whole, strict=True)]

    def _combine(
        self, frame: Frame, operation: Operation, left: list[torch.Tensor], right: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        shape = left[0].shape  # (pairs, programs, rest)
        results = self._elements(frame, operation, [value.reshape(-1) for value in (*left, *right)], shape, 1)
        return [result.reshape(shape) for result in results]

    def map(self, frame: Frame, operation: Operation) -> tuple[Value, ...]:
        """tt.map_elementwise."""
        values = self._operands(frame, operation)
        shape = values[0].shape
        results = self._elements(frame, operation, [value.reshape(-1) for value in values], shape, 0)
        kinds = tuple(element_of(frame.types[number]) for number in operation.results)
        self._check_types(frame, operation.regions[0], kinds)
        return tuple(result.reshape(shape) for result in results)

    def _check_types(self, frame: Frame, region: Region, kinds: tuple[Type, ...]) -> None:
        end = region.blocks[0].operations[-1] if region.blocks[0].operations else None
        if end is None or tuple(frame.types[number] for number in end.operands) != kinds:
            raise Malformed("a region gives values of other types than its operation")

    def _elements(
        self, frame: Frame, operation: Operation, arguments: list[torch.Tensor], shape: torch.Size, lanes_axis: int
    ) -> list[torch.Tensor]:
        """Run the region over elements; `lanes_axis` is the programs' axis of `shape`."""
        region = operation.regions[0]
        if len(region.blocks) != 1:
            raise Unsupported(f"{operation.name} with branches", "use tl.where or an if that is an expression")
        if lanes_axis:
            self._check_types(
                frame,
                region,
                tuple(frame.types[number] for number in region.blocks[0].arguments)[: len(arguments) // 2],
            )
        _check_operations(region)
        lanes = arguments[0].numel()
        inner = Frame(frame.machine, frame.function, lanes, None, frame.depth)
        for number in region.captured:
            inner.values[number] = _spread(frame, number, shape, lanes_axis)
        results = enter(inner, region, list(arguments), self._all)
        block = region.blocks[0].operations[-1]
        made = [dense(value, frame.types[number]) for value, number in zip(results, block.operands, strict=True)]
        return [value.expand(lanes) for value in made]


def _check_operations(region: Region) -> None:
    """Regions compute with scalars: what depends on programs or memory has no place in them."""
    for block in region.blocks:
        for operation in block.operations:
            if not operation.name.startswith(_IN_REGIONS) and operation.name not in _MORE_IN_REGIONS:
                raise Unsupported(f"{operation.name} in a region of scalars")
            for inner in operation.regions:
                _check_operations(inner)


def _spread(frame: Frame, number: int, shape: torch.Size, lanes_axis: int) -> Value:
    """A scalar of the surroundings, for each element."""
    value = frame.value(number)
    if shape_of(frame.types[number]) or not isinstance(value, Affine | torch.Tensor):
        raise Unsupported("a tensor that is used in a region of scalars")
    elements = dense(value, frame.types[number])
    if elements.numel() == 1:
        return elements.reshape(1)
    sizes = [1] * len(shape)
    sizes[lanes_axis] = elements.numel()
    return elements.view(sizes).expand(shape).reshape(-1)
