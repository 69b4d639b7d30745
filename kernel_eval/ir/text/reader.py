"""What the forms of operations read from: a cursor, and the values that are visible at this place of a function."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from weir.kernel_eval.ir.errors import LimitExceeded, Malformed, Unsupported
from weir.kernel_eval.ir.module import PROMISE, Block, Operation, Region
from weir.kernel_eval.ir.text.cursor import Cursor
from weir.kernel_eval.ir.types import Type

# hints for the compiler; they change no value
_HINTS = frozenset(
    [
        *("tt.pointee_type", "tt.pointer_range"),
        *("tt.num_stages", "tt.flatten", "tt.loop_unroll_factor", "tt.disallow_acc_multi_buffer", "tt.warp_specialize"),
        *("tt.latency", "tt.self_latency", "tt.disable_licm", "tt.disallow_licm", "llvm.loop_annotation"),
        *("tt.nv_tma_desc", "noinline", "sym_visibility"),
    ]
)

# hints of what values are, which the compiler believes
_PROMISES = frozenset({"tt.divisibility", "tt.contiguity", "tt.constancy"})


@dataclasses.dataclass(slots=True, kw_only=True)
class Parsed:
    """What a form read: everything of an operation but its name and the names of its results."""

    operands: tuple[int, ...] = ()
    types: tuple[Type, ...] = ()
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    successors: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Reader:
    """Reads the operations of one function. `forms` reads what stands after the name of each operation."""

    def __init__(self, cursor: Cursor, forms: dict[str, Callable[[Reader, str], Parsed]], done: int) -> None:
        self.cursor = cursor
        self.types: list[Type] = []
        self.operations = done  # of the whole module
        self._forms = forms
        self._scopes: list[dict[str, int]] = [{}]
        self._promises: dict[str, Any] = {}  # of the operation that is being read

    def define(self, name: str, kind: Type) -> int:
        """A new value. Raises Malformed."""
        scope = self._scopes[-1]
        if any(name in known for known in self._scopes):
            raise Malformed(f"line {self.cursor.line}: {name[:40]} is defined twice")
        scope[name] = len(self.types)
        self.types.append(kind)
        return scope[name]

    def value(self) -> int:
        """A value that is defined here. Raises Malformed."""
        name = self.cursor.take("value")
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise Malformed(f"line {self.cursor.line}: {name[:40]} is used before it is defined")

    def values(self) -> tuple[int, ...]:
        """One or more values, separated by commas."""
        found = [self.value()]
        while self.cursor.has(","):
            found.append(self.value())
        return tuple(found)

    def value_list(self, opening: str = "(", closing: str = ")") -> tuple[int, ...]:
        """Values in parentheses."""
        self.cursor.expect(opening)
        if self.cursor.has(closing):
            return ()
        found = self.values()
        self.cursor.expect(closing)
        return found

    def require(self, holds: bool, message: str) -> None:
        """Raise Malformed unless a rule about types holds."""
        if not holds:
            raise Malformed(f"line {self.cursor.line}: {message}")

    def agree(self, values: tuple[int, ...], types: tuple[Type, ...]) -> None:
        """Raise Malformed unless the values have these types."""
        if tuple(self.types[value] for value in values) != types:
            raise Malformed(f"line {self.cursor.line}: operands have other types than those that are written")

    def attributes(self, *known: str, opening: str = "{") -> dict[str, Any]:
        """A dictionary of attributes without the compiler's hints; Unsupported if one is not known.

        Raises Unsupported.
        """
        found = self.cursor.attributes(opening)
        for name in found:
            if name not in known and name not in _HINTS | _PROMISES:
                raise Unsupported(f"attribute {name[:40]}")
        self._promises |= {name: value for name, value in found.items() if name in _PROMISES}
        return {name: value for name, value in found.items() if name in known or name not in _HINTS | _PROMISES}

    def region(self, arguments: tuple[tuple[str, Type], ...] = (), labelled: bool = False) -> Region:
        """A region in braces; its arguments are named before it, or (labelled) in its first line.

        Raises LimitExceeded.
        """
        self.cursor.expect("{")
        self._scopes.append({})
        if len(self._scopes) > self.cursor.limits.nesting:
            raise LimitExceeded("nesting", f"line {self.cursor.line}: regions nested too deeply")
        values = tuple(self.define(name, kind) for name, kind in arguments)
        label = "^entry"
        blocks: list[Block] = []
        while not blocks or self.cursor.peek().kind == "label":
            if self.cursor.peek().kind == "label":
                label = self.cursor.take("label")
                values = values + self._block_arguments()
            blocks.append(Block(label, values, self._block_operations()))
            values = ()
        self.cursor.expect("}")
        self._scopes.pop()
        return Region(blocks)

    def _block_arguments(self) -> tuple[int, ...]:
        found: list[int] = []
        if self.cursor.has("("):
            while not found or self.cursor.has(","):
                name = self.cursor.take("value")
                self.cursor.expect(":")
                found.append(self.define(name, self.cursor.type()))
            self.cursor.expect(")")
        self.cursor.expect(":")
        return tuple(found)

    def _block_operations(self) -> list[Operation]:
        found = []
        while not self.cursor.sees("}") and self.cursor.peek().kind not in ("label", "end"):
            outer, self._promises = self._promises, {}
            operation = self.operation()
            found.append(operation)
            if self._promises:
                found += [Operation(PROMISE, operation.line, (one,), (), self._promises) for one in operation.results]
            self._promises = outer
        return found

    def operation(self) -> Operation:
        """One operation, with its results. Raises LimitExceeded, Malformed, Unsupported."""
        self.operations += 1
        if self.operations > self.cursor.limits.operations:
            raise LimitExceeded("operations", f"the module has more than {self.cursor.limits.operations} operations")
        line = self.cursor.line
        names = self._result_names() if self.cursor.peek().kind == "value" else []
        if self.cursor.peek().kind == "string":
            name = self.cursor.string()
            form = self._forms.get(f'"{name}"')
        else:
            name = self.cursor.take("word")
            form = self._forms.get(name)
        if form is None:
            raise Unsupported(name[:60], f"operation on line {line}")
        parsed = form(self, name)
        if len(names) != len(parsed.types):
            raise Malformed(f"line {line}: {name} has {len(parsed.types)} results, not {len(names)}")
        results = tuple(self.define(result, kind) for result, kind in zip(names, parsed.types, strict=True))
        return Operation(name, line, parsed.operands, results, parsed.attributes, parsed.regions, parsed.successors)

    def _result_names(self) -> list[str]:
        names: list[str] = []
        while not names or self.cursor.has(","):
            name = self.cursor.take("value")
            if "#" in name:
                raise self.cursor.malformed("the name of a result")
            count = self.cursor.integer() if self.cursor.has(":") else 0
            if not 0 <= count <= 1024:
                raise self.cursor.malformed("a number of results")
            names.extend(f"{name}#{index}" for index in range(count)) if count else names.append(name)
        self.cursor.expect("=")
        return names
