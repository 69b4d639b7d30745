"""How much memory the values of one program take, from the module alone."""

from __future__ import annotations

from weir.kernel_eval.ir.module import Function, Module, Region
from weir.kernel_eval.ir.types import Scalar, Tensor, Type, element_of

_WORK = 3  # an operation's own intermediate tensors, beside its operands and results


def footprint(module: Module) -> tuple[int, int]:
    """Elements of the largest tensor, and bytes of all values that live at the same time, of one program."""
    largest = max(
        (kind.numel for function in module.functions.values() for kind in function.types if isinstance(kind, Tensor)),
        default=1,
    )
    live = sum(_region(function, function.body) for function in module.functions.values())
    return largest, live


def _size(kind: Type) -> int:
    element = element_of(kind)
    width = max(4, element.size) if isinstance(element, Scalar) else 8
    return kind.numel * width if isinstance(kind, Tensor) else 8


def _region(function: Function, region: Region) -> int:
    """The most bytes that live at once in a region, without those of its surroundings."""
    most = live = 0
    for block in region.blocks:
        live += sum(_size(function.types[number]) for number in block.arguments)
        for operation in block.operations:
            results = sum(_size(function.types[number]) for number in operation.results)
            largest = max(
                (_size(function.types[number]) for number in (*operation.operands, *operation.results)), default=0
            )
            inner = sum(_region(function, inside) for inside in operation.regions)
            most = max(most, live + results + max(inner, _WORK * largest))
            live += results - sum(_size(function.types[number]) for number in operation.dead)
    return max(most, live)
