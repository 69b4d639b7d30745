"""Which parameters of a kernel it may store to, and which it may load from, found before it runs.

An over-approximation: pointers that meet in one operation are taken for the same. Loads of what is never written may
give views of memory, and need not be followed for races.
"""

from __future__ import annotations

import dataclasses

from weir.kernel_eval.ir.module import Function, Module, Operation, Region
from weir.kernel_eval.ir.types import Descriptor, Pointer, Type, element_of, shape_of

_READS = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather"})
_WRITES = frozenset({"tt.store", "tt.descriptor_store", "tt.descriptor_scatter"})
_ATOMICS = frozenset({"tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Positions of parameters of the kernel. `granule`: bytes of the smallest element that is accessed.

    takes_turns: programs must run one after the other: a loop without a bound waits for an atomic operation, or one
    tells a program that it may load what others stored.
    """

    read: frozenset[int]
    written: frozenset[int]
    granule: int
    takes_turns: bool


def uses_of(module: Module) -> Uses:
    """How a module's kernel uses its parameters."""
    groups = _Groups(module)
    for function in module.functions.values():
        groups.region(function, function.body)
    parameters = [(function, number) for function in [module.entry] for number in function.parameters]
    roots = [groups.find((function.name, number)) for function, number in parameters]
    return Uses(
        read=frozenset(at for at, root in enumerate(roots) if root in {groups.find(key) for key in groups.read}),
        written=frozenset(at for at, root in enumerate(roots) if root in {groups.find(key) for key in groups.written}),
        granule=min(groups.sizes, default=1),
        takes_turns=any(_spins(function.body, False) for function in module.functions.values())
        or (
            groups.asks and not {groups.find(key) for key in groups.loaded}.isdisjoint(map(groups.find, groups.stored))
        ),
    )


def _spins(region: Region, inside: bool) -> bool:
    for block in region.blocks:
        for operation in block.operations:
            if inside and operation.name in ("tt.atomic_rmw", "tt.atomic_cas", "tt.call"):
                return True
            if any(_spins(inner, inside or operation.name == "scf.while") for inner in operation.regions):
                return True
    return False


Key = tuple[str, int]


def _is_address(kind: Type) -> bool:
    return isinstance(element_of(kind), Pointer | Descriptor)


class _Groups:
    """Values that hold addresses, joined where one may come from another."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._parents: dict[Key, Key] = {}
        self.read: set[Key] = set()
        self.written: set[Key] = set()
        self.loaded: set[Key] = set()  # without atomics
        self.stored: set[Key] = set()
        self.asks = False  # what a scalar atomic returns is used
        self.sizes: set[int] = set()

    def find(self, key: Key) -> Key:
        while (parent := self._parents.get(key, key)) != key:
            self._parents[key] = self._parents.get(parent, parent)
            key = parent
        return key

    def _join(self, first: Key, second: Key) -> None:
        self._parents[self.find(first)] = self.find(second)

    def _pairs(self, function: Function, first: tuple[int, ...], second: tuple[int, ...]) -> None:
        for a, b in zip(first, second, strict=False):
            if _is_address(function.types[a]):
                self._join((function.name, a), (function.name, b))

    def region(self, function: Function, region: Region) -> None:
        """Join the values of a region, and of those in it."""
        labels = {block.label: block for block in region.blocks}
        for block in region.blocks:
            for operation in block.operations:
                self._operation(function, operation)
                for label, values in operation.successors:
                    if label in labels:
                        self._pairs(function, values, labels[label].arguments)
                for inner in operation.regions:
                    self.region(function, inner)

    def _operation(self, function: Function, operation: Operation) -> None:
        name = operation.name
        if name in _READS | _WRITES | _ATOMICS:
            pointer = (function.name, operation.operands[0])
            if name in _READS | _ATOMICS:
                self.read.add(pointer)
            if name in _WRITES | _ATOMICS:
                self.written.add(pointer)
            if name in _READS:
                self.loaded.add(pointer)
            if name in _WRITES:
                self.stored.add(pointer)
            if name in _ATOMICS and any(
                result not in operation.dead and not shape_of(function.types[result]) for result in operation.results
            ):
                self.asks = True
            self.sizes.add(_element_size(function.types[operation.operands[0]]))
        elif name == "scf.for":
            self._loop(function, operation, operation.operands[3:], operation.regions[0], 1, 0)
        elif name == "scf.while":
            self._loop(function, operation, operation.operands, operation.regions[1], 0, 0)
            before = operation.regions[0].blocks[0]
            self._pairs(function, operation.operands, before.arguments)
            if before.operations:
                self._pairs(function, before.operations[-1].operands[1:], operation.results)
        elif name == "scf.if":
            for region in operation.regions:
                if region.blocks[0].operations:
                    self._pairs(function, region.blocks[0].operations[-1].operands, operation.results)
        elif name == "tt.call":
            self._call(function, operation)
        elif not operation.regions:
            addresses = [
                value for value in (*operation.operands, *operation.results) if _is_address(function.types[value])
            ]
            self._pairs(function, tuple(addresses[:-1]), tuple(addresses[1:]))

    def _loop(
        self, function: Function, operation: Operation, start: tuple[int, ...], body: Region, skip: int, _: int
    ) -> None:
        block = body.blocks[0]
        arguments = block.arguments[skip:]
        if operation.name == "scf.for":
            self._pairs(function, start, arguments)
            self._pairs(function, start, operation.results)
        else:
            self._pairs(function, operation.results, arguments)
        if block.operations:
            self._pairs(function, block.operations[-1].operands, start)

    def _call(self, function: Function, operation: Operation) -> None:
        callee = self._module.functions.get(operation.attributes["callee"])
        if callee is None:
            return
        for value, parameter in zip(operation.operands, callee.parameters, strict=False):
            if _is_address(function.types[value]):
                self._join((function.name, value), (callee.name, parameter))
        returned = [one.operands for block in callee.body.blocks for one in block.operations if one.name == "tt.return"]
        for operands in returned:
            for value, result in zip(operands, operation.results, strict=False):
                if _is_address(callee.types[value]):
                    self._join((callee.name, value), (function.name, result))


def _element_size(kind: Type) -> int:
    if isinstance(kind, Descriptor):
        return kind.block.element.size  # type: ignore[union-attr]
    pointer = element_of(kind)
    assert isinstance(pointer, Pointer)
    element = element_of(pointer.pointee)
    return element.size  # type: ignore[union-attr]
