"""Finds after which operation a value is not used again, so that the interpreter can free it."""

from __future__ import annotations

from weir.kernel_eval.ir.module import Function, Operation, Region


def mark_dead(function: Function) -> None:
    """Set `dead` of every operation and `captured` of every region of a function."""
    _mark_region(function.body, keep_shared=len(function.body.blocks) > 1)


def _mark_region(region: Region, keep_shared: bool) -> set[int]:
    """The values of the surroundings that a region uses. `keep_shared`: values may be used in other blocks."""
    uses_by_block = []
    defined: set[int] = set()
    for block in region.blocks:
        defined.update(block.arguments)
        uses: list[set[int]] = []
        for operation in block.operations:
            uses.append(_uses(operation))
            defined.update(operation.results)
        uses_by_block.append(uses)
    for number, block in enumerate(region.blocks):
        others = {value for at, uses in enumerate(uses_by_block) if at != number for used in uses for value in used}
        local = set(block.arguments).union(*(operation.results for operation in block.operations)) - others
        seen: set[int] = set()
        for operation, used in zip(reversed(block.operations), reversed(uses_by_block[number]), strict=True):
            operation.dead = tuple(((used | set(operation.results)) & local) - seen)
            seen |= used
    captured = {value for uses in uses_by_block for used in uses for value in used} - defined
    region.captured = tuple(sorted(captured))
    return captured


def _uses(operation: Operation) -> set[int]:
    used = set(operation.operands)
    for _, arguments in operation.successors:
        used.update(arguments)
    for region in operation.regions:
        used |= _mark_region(region, keep_shared=len(region.blocks) > 1)
    return used
