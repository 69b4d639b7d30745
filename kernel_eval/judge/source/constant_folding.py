"""Evaluates the numeric constants of a candidate's module from their syntax trees, without executing them.

Invariant: an accepted expression takes little time and memory when the module is imported, because every part of it
was checked against bounds here.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

Number = int | float
CONSTEXPR = "triton.language.constexpr"
_MAX_INTEGER = 1 << 64
_MAX_EXPONENT = 64
_FUNCTIONS = frozenset(
    ["sqrt", "log", "log2", "log10", "exp", "exp2", "sin", "cos", "tan", "tanh", "erf", "fabs", "ceil", "floor"]
)
_VALUES = frozenset(("pi", "e", "tau", "inf"))
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def number_of(
    value: ast.expr, known: Callable[[str], Number | None], stands_for: Callable[[str], str | None]
) -> Number | None:
    """The value of a literal, of arithmetic, of a function of `math` or of a numeric constant; None for all else.

    `known` gives the values of constants, `stands_for` the dotted path of an imported name.
    """
    try:
        number = _Numbers(known, stands_for).of(value)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return number if number is None or isinstance(number, float) or abs(number) < _MAX_INTEGER else None


class _Numbers:
    def __init__(self, known: Callable[[str], Number | None], stands_for: Callable[[str], str | None]) -> None:
        self._known = known
        self._stands_for = stands_for

    def of(self, value: ast.expr) -> Number | None:
        if isinstance(value, ast.Constant):
            literal = value.value
            return literal if isinstance(literal, Number) and not isinstance(literal, bool) else None
        if isinstance(value, ast.Name):
            return self._known(value.id)
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
            inner = self.of(value.operand)
            return None if inner is None else -inner
        if isinstance(value, ast.BinOp):
            return self._combined(value)
        if isinstance(value, ast.Attribute):
            module, name = self._path_of(value)
            return getattr(math, name) if module == "math" and name in _VALUES else None
        return self._called(value) if isinstance(value, ast.Call) else None

    def _combined(self, value: ast.BinOp) -> Number | None:
        left, right = self.of(value.left), self.of(value.right)
        combine = _OPERATORS.get(type(value.op))
        if left is None or right is None or combine is None:
            return None
        if isinstance(value.op, ast.Pow | ast.LShift) and abs(right) > _MAX_EXPONENT:
            return None
        combined = combine(left, right)
        too_large = isinstance(combined, int) and abs(combined) >= _MAX_INTEGER
        return None if too_large or isinstance(combined, complex) else combined

    def _called(self, value: ast.Call) -> Number | None:
        module, name = self._path_of(value.func)
        if len(value.args) != 1 or value.keywords:
            return None
        argument = self.of(value.args[0])
        if argument is None or f"{module}.{name}" == CONSTEXPR:
            return argument
        return getattr(math, name)(argument) if module == "math" and name in _FUNCTIONS else None

    def _path_of(self, value: ast.expr) -> tuple[str, str]:
        """The module and the name in it that an expression refers to; both empty where it is no imported name."""
        names: list[str] = []
        while isinstance(value, ast.Attribute):
            names.insert(0, value.attr)
            value = value.value
        path = self._stands_for(value.id) if isinstance(value, ast.Name) else None
        module, _, name = ".".join((path, *names)).rpartition(".") if path else ("", "", "")
        return module, name
