"""Public functions say what they raise. Commands do not: their docstrings are help texts, and their errors one line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support_house import PARTS, ROOT, sources

COMMANDS = Path("scripts/cli/commands")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(path: Path) -> Iterator[Function]:
    """Functions of a module and methods of its classes whose names do not begin with an underscore."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from (inner for inner in node.body if isinstance(inner, Function) and not inner.name.startswith("_"))
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield node


def raises(function: Function) -> bool:
    """Whether its own body, without functions inside it, has a `raise` with an exception that leaves it."""
    open_: list[ast.AST] = list(function.body)
    while open_:
        node = open_.pop()
        if isinstance(node, Function | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        open_.extend(ast.iter_child_nodes(node))
    return False


@pytest.mark.parametrize("part", PARTS)
def test_a_public_function_that_raises_says_so(part: str) -> None:
    checked = [path for path in sources(part) if COMMANDS not in path.parents]
    raising = [(path, function) for path in checked for function in public_functions(path) if raises(function)]
    assert raising
    silent = [
        f"{path}:{function.lineno} {function.name}"
        for path, function in raising
        if "raise" not in (ast.get_docstring(function) or "").lower()
    ]
    assert not silent, "\n".join(silent)
