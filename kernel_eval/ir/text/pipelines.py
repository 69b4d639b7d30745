"""Finds the loads that Triton's compiler takes before the stores of earlier iterations of their loop.

Of an innermost `scf.for` it pipelines the loads that a dot of the same block is made of, directly or by way of other
values, and all loads where the loop names its stages (`tl.range(num_stages=…)`); with one stage none. It does not ask
whether the loop stores what it loads.
"""

from __future__ import annotations

from collections.abc import Iterator

from weir.kernel_eval.ir.module import EARLY, PIPELINED, Function, Module, Operation, Region

_LOADS = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather"})
_STORES = frozenset({"tt.store", "tt.atomic_rmw", "tt.descriptor_store", "tt.descriptor_scatter", "tt.call"})
_STAGES = "tt.num_stages"
_DOT, _ADDED_TO = "tt.dot", 2  # and the operand that its products are added to


def mark_pipelined(module: Module, num_stages: int) -> None:
    """Set `EARLY` and `PIPELINED` of operations. `num_stages`: of the launch, for loops that name none."""
    for function in module.functions.values():
        for loop in _loops(function):
            own = loop.attributes.get(_STAGES)
            stages = own if isinstance(own, int) else num_stages
            body = loop.regions[0]
            inner = list(_inside(body))
            if stages < 2 or any(one.name == "scf.for" for one in inner) or not any(o.name in _STORES for o in inner):
                continue
            early = _loads_of(body, all_of_them=isinstance(own, int))
            for load in early:
                load.attributes[EARLY] = True
            if early:
                loop.attributes[PIPELINED] = True


def _loops(function: Function) -> Iterator[Operation]:
    return (operation for operation in _inside(function.body) if operation.name == "scf.for")


def _inside(region: Region) -> Iterator[Operation]:
    """The operations of a region, and of those within them."""
    for block in region.blocks:
        for operation in block.operations:
            yield operation
            for inner in operation.regions:
                yield from _inside(inner)


def _loads_of(body: Region, *, all_of_them: bool) -> list[Operation]:
    """The loads of a loop's block: all, or those that its dots are made of."""
    operations = body.blocks[0].operations
    if all_of_them:
        return [operation for operation in operations if operation.name in _LOADS]
    makers = {result: operation for operation in operations for result in operation.results}
    waiting = [operand for one in operations if one.name.startswith(_DOT) for operand in _followed(one)]
    found: dict[int, Operation] = {}
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        maker = makers.get(value)
        if value in seen or maker is None:
            continue
        seen.add(value)
        waiting += _followed(maker)
        if maker.name in _LOADS:
            found[value] = maker
    return list(found.values())


def _followed(operation: Operation) -> tuple[int, ...]:
    """The operands by way of which loads are found: of a dot all but what it adds to."""
    is_dot = operation.name.startswith(_DOT)
    return operation.operands[:_ADDED_TO] + operation.operands[_ADDED_TO + 1 :] if is_dot else operation.operands
