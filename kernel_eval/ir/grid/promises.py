"""What a kernel promises to the compiler of its values, compared with them: false promises leave the result undefined.

`tl.multiple_of`, `tl.max_contiguous` and `tl.max_constancy` replace what Triton's analysis finds of an axis: in how
large groups values count by one (pointers: by one element) or are the same, and what the first value of each group of
values that count is a multiple of (pointers: in bytes).
"""

from __future__ import annotations

import torch

from weir.kernel_eval.ir.errors import KernelFault, Malformed
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.module import PROMISE, Function, Operation, Region
from weir.kernel_eval.ir.types import Pointer, Scalar, Type, element_of, shape_of

_ACCESSES = frozenset({"tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"})
# Triton finds no groups that count in what these make of values that do
_DROPS = frozenset({"arith.muli", "arith.shli"})
_IGNORES = frozenset({PROMISE, "llvm.intr.assume", "tt.assert", "tt.print"})


def _of_active(frame: Frame, number: int) -> torch.Tensor:
    """A value of the active programs, with 1 for axes along which it does not vary."""
    value = frame.tensor(number)
    return value if frame.active is None or value.shape[0] == 1 else value[frame.active]


def _assume(frame: Frame, operation: Operation) -> None:
    if not bool(_of_active(frame, operation.operands[0]).all()):
        raise KernelFault("assertion", f"tl.assume of what is false (line {operation.line} of its IR)")


def _promise(frame: Frame, operation: Operation) -> None:
    number = operation.operands[0]
    kind = frame.types[number]
    element, shape = element_of(kind), shape_of(kind)
    if not isinstance(element, Pointer) and (not isinstance(element, Scalar) or element.is_float):
        return
    values, step = _of_active(frame, number).to(torch.int64), _step(element)
    for name, of_axes in operation.attributes.items():
        of_axes = of_axes * max(1, len(shape)) if len(of_axes) == 1 else of_axes
        if len(of_axes) != max(1, len(shape)) or min(of_axes) < 1:
            raise Malformed(f"line {operation.line}: a promise of as many numbers as the value has axes")
        for axis, promised in enumerate(of_axes):
            if promised > 1 and not _holds(name, values, shape, axis, promised, step):
                if name == "tt.contiguity" and not _is_accessed(frame.function, number):
                    continue
                raise KernelFault("assertion", f"{_NAMES[name]} of what is none (line {operation.line} of its IR)")


_NAMES = {"tt.divisibility": "tl.multiple_of", "tt.contiguity": "tl.max_contiguous", "tt.constancy": "tl.max_constancy"}


def _step(element: Type) -> int:
    """How much neighbours that count differ by."""
    if not isinstance(element, Pointer):
        return 1
    pointee = element_of(element.pointee)
    return pointee.size if isinstance(pointee, Scalar) else 1


def _holds(name: str, values: torch.Tensor, shape: tuple[int, ...], axis: int, promised: int, step: int) -> bool:
    if not shape:
        return name != "tt.divisibility" or not bool((values % promised).any())
    size = shape[axis]
    along = values.expand(*values.shape[: axis + 1], size, *values.shape[axis + 2 :]).movedim(axis + 1, -1)
    differences = along.diff(dim=-1)
    if name == "tt.divisibility":
        starts = torch.ones_like(along, dtype=torch.bool)
        starts[..., 1:] = differences != step
        return not bool((starts & (along % promised != 0)).any())
    inner = torch.arange(1, size) % promised != 0
    return bool((differences[..., inner] == (step if name == "tt.contiguity" else 0)).all())


def _is_accessed(function: Function, number: int) -> bool:
    """Whether groups that count, in a value, may decide how memory is accessed: by pointers or by masks."""
    known = {number}
    while True:
        before = len(known)
        if _follow(function.body, known):
            return True
        if len(known) == before:
            return False


def _follow(region: Region, known: set[int]) -> bool:
    """Add what is made of known values; whether one gets to an access, or to where it is not followed."""
    for block in region.blocks:
        for operation in block.operations:
            if any(_follow(inner, known) for inner in operation.regions):
                return True
            uses = operation.operands
            if operation.name == "tt.store":
                uses = (uses[0], *uses[2:])
            if operation.name in _IGNORES or known.isdisjoint(uses):
                continue
            if operation.name in _ACCESSES or not operation.results or operation.regions:
                return True
            if operation.name not in _DROPS:
                known.update(operation.results)
    return False


HANDLERS: dict[str, Handler] = {"llvm.intr.assume": _assume, PROMISE: _promise}
