"""Injects one typical mistake into a kernel: a missing mask, a wrong operation, a name that `tl` lacks.

A mistake may have no effect on the result; the judge decides. Invariants: every mistake changes one place of a Triton
kernel; the same seed yields the same mistakes in the same order. Pure.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator

_SWAPPED = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "sum": "max", "sin": "cos"}
_SWAPPED |= {"exp": "log", "log": "exp", "cos": "sin", "abs": "exp"}
_LACKING = {"sigmoid": "logistic", "exp": "exponential", "sum": "reduce_sum", "maximum": "relu", "sqrt": "square_root"}
_LACKING |= {"max": "amax", "min": "amin", "abs": "absolute", "log": "ln"}
_MASKS = ("mask", "other")


def mistakes(source: str, seed: int) -> list[str]:
    """Copies of the source with one mistake each, in an order drawn from the seed; none without a Triton kernel."""
    edits = [edit for kernel in _kernels(ast.parse(source)) for edit in _edits(kernel)]
    random.Random(seed).shuffle(edits)
    spoiled = (_replaced(source, node, text) for node, text in edits)
    return list(dict.fromkeys(text for text in spoiled if text != source))


def _kernels(module: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and any("triton.jit" in ast.unparse(one) for one in node.decorator_list):
            yield node


def _edits(kernel: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and (name := _of_tl(node.func)):
            for mistake in _MISTAKES:
                if (text := mistake(node, name)) is not None:
                    yield node, text


def _without_mask(call: ast.Call, name: str) -> str | None:
    num_own = {"load": 1, "store": 2}.get(name)
    if num_own is None:
        return None
    kept = [keyword for keyword in call.keywords if keyword.arg not in _MASKS]
    return ast.unparse(ast.Call(call.func, call.args[:num_own], kept))


def _swapped(call: ast.Call, name: str) -> str | None:
    return _with_name(call, _SWAPPED.get(name))


def _lacking(call: ast.Call, name: str) -> str | None:
    return _with_name(call, _LACKING.get(name))


_MISTAKES: tuple[Callable[[ast.Call, str], str | None], ...] = (_without_mask, _swapped, _lacking)


def _with_name(call: ast.Call, name: str | None) -> str | None:
    if name is None or not isinstance(call.func, ast.Attribute):
        return None
    return ast.unparse(ast.Call(ast.Attribute(call.func.value, name, ast.Load()), call.args, call.keywords))


def _of_tl(function: ast.expr) -> str | None:
    """`load` of `tl.load`."""
    match function:
        case ast.Attribute(ast.Name("tl"), name):
            return name
    return None


def _replaced(source: str, node: ast.expr, text: str) -> str:
    """The source with a node replaced; columns of the syntax tree count UTF-8 bytes, lines end at line feeds."""
    lines = source.encode().split(b"\n")
    assert node.end_lineno is not None and node.end_col_offset is not None
    before = b"\n".join([*lines[: node.lineno - 1], lines[node.lineno - 1][: node.col_offset]])
    after = b"\n".join([lines[node.end_lineno - 1][node.end_col_offset :], *lines[node.end_lineno :]])
    return (before + text.encode() + after).decode()
