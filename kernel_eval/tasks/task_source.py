"""What the source of a task says about its inputs: which draws it can take, and which size can be changed. Pure."""

from __future__ import annotations

import ast
import functools
import re
from typing import Any

from weir.kernel_eval.tasks.input_variants import SPECIAL, Draw

_ASK_FOR_NANS = frozenset(
    {
        *("isnan", "isfinite", "nan_to_num", "nan_to_num_", "signbit", "copysign"),
        *("nansum", "nanmean", "nanmedian", "nanquantile", "fmax", "fmin"),
    }
)
_ASK_FOR_INFINITIES = frozenset({"isinf", "isposinf", "isneginf"})
SET_BOUNDS = frozenset(
    {
        *("clamp", "clamp_", "clamp_min", "clamp_max", "clip", "clip_", "hardtanh", "hardtanh_", "Hardtanh"),
        *("threshold", "threshold_", "Threshold", "where", "minimum", "maximum"),
    }
)
_DECIDE = frozenset(
    {
        *("smooth_l1_loss", "SmoothL1Loss", "huber_loss", "HuberLoss", "searchsorted", "bucketize"),
        *("softshrink", "Softshrink", "hardshrink", "Hardshrink"),
    }
)  # as comparisons do
_COMPARES = frozenset(
    {
        *("lt", "le", "gt", "ge", "eq", "ne", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
        "isclose",
    }
)
_EQUAL = frozenset({"eq", "ne", "not_equal"})
_ASK_FOR_SIGNS_OF_ZERO = frozenset({"atan2", "arctan2", "atan2_", "arctan2_", "copysign", "copysign_"})
_TAKE_THE_OTHER = frozenset({"fmax", "fmin"})
_SORTS = frozenset({"sort", "argsort"})
_INFINITY = re.compile(r"\.inf\b|^-?inf$|[\"']-?inf(inity)?[\"']")
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_EQUALITIES = (ast.Eq, ast.NotEq)
_PICK_ONE_OF_EQUALS = frozenset(
    {
        *("argmax", "argmin", "argsort", "sort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode", "unique"),
        *("unique_consecutive", "multinomial"),
    }
)  # functions that may take any of equal values


def harder_than_mixed(source: str) -> tuple[Draw, ...]:
    """The draws that are tried before a mixed one.

    Special values are drawn only for tasks that name them: kernels may treat them otherwise than torch. One that asks
    which scores a mask has made minus infinity says nothing of NaN, which is no maximum in Triton. So are values beyond
    bounds: kernels may have bounds of their own (-1e6 for what a mask hides). Equal values are drawn unless the
    task may take any of them.
    """
    names = names_in(source)
    if _called_in(source) & _PICK_ONE_OF_EQUALS:
        return ()
    return (
        *specials_of(source),
        *((Draw.BEYOND,) if names & (SET_BOUNDS | _DECIDE) or _compares(source) else ()),
        Draw.HARD,
    )


def numbers_in(source: str) -> list[float]:
    """The numbers that the source writes, in order, but for those in what makes its inputs."""
    constants = [(node, node.value) for node in _nodes(source) if isinstance(node, ast.Constant)]
    minus = {node.operand for node in _nodes(source) if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)}
    return [-value if node in minus else value for node, value in constants if isinstance(value, int | float)]


def tells_zeros_apart(source: str) -> bool:
    """Whether a source names functions of several inputs whose value for 0.0 and for -0.0 is not the same."""
    return bool(names_in(source) & _ASK_FOR_SIGNS_OF_ZERO)


def takes_the_other(source: str) -> bool:
    """Whether a source names functions that give the other value where one of two is NaN."""
    return bool(names_in(source) & _TAKE_THE_OTHER)


def sorts_stably(source: str) -> bool:
    """Whether each function that could take any of equal values is a sort that keeps their order."""
    calls = (node for node in _nodes(source) if isinstance(node, ast.Call))
    picks = [call for call in calls if _name_of(call.func) in _PICK_ONE_OF_EQUALS]
    return bool(picks) and all(_name_of(call.func) in _SORTS and any(map(_is_stable, call.keywords)) for call in picks)


def _called_in(source: str) -> frozenset[str | None]:
    """The names of what a source calls, or hands on as an attribute of torch: an argument may be named `mode`, too."""
    called = [node.func for node in _nodes(source) if isinstance(node, ast.Call)]
    of_torch = [node for node in _nodes(source) if isinstance(node, ast.Attribute) and _is_torch(node.value)]
    return frozenset(map(_name_of, (*called, *of_torch)))


def _is_torch(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("torch", "F")


def _name_of(function: ast.expr) -> str | None:
    return getattr(function, "attr", None) or getattr(function, "id", None)


def _is_stable(given: ast.keyword) -> bool:
    return given.arg == "stable" and isinstance(given.value, ast.Constant) and given.value.value is True


def specials_of(source: str) -> tuple[Draw, ...]:
    """The draws of special values that a source names, or asks for without a name: `x != x`, `x == inf`."""
    names = names_in(source)
    if names & _ASK_FOR_NANS or any(map(_asks_for_nan, _nodes(source))):
        return SPECIAL
    asks = bool(names & _ASK_FOR_INFINITIES) or any(
        _INFINITY.search(text) for node in _nodes(source) for text in _compared(node)
    )
    return (Draw.INFINITE,) if asks else ()


def _asks_for_nan(node: ast.AST) -> bool:
    """Whether a node compares something with itself, or takes it away from itself."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return ast.unparse(node.left) == ast.unparse(node.right)
    texts = _compared(node)
    return len(set(texts)) < len(texts)


def _compared(node: ast.AST) -> list[str]:
    """The texts of what a node compares."""
    if isinstance(node, ast.Compare):
        compared = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in _EQUAL:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        compared = node.args if len(node.args) > 1 else [owner, *node.args]
    else:
        compared = []
    return [ast.unparse(value) for value in compared]


def decides(source: str) -> bool:
    """Whether a source compares values, or sets bounds for them."""
    names = names_in(source)
    return bool(names & (SET_BOUNDS | _DECIDE | _COMPARES)) or _compares(source, _ORDERS + _EQUALITIES)


@functools.lru_cache(maxsize=16)
def names_in(source: str) -> frozenset[str | None]:
    """The names that the source uses, but for those in what makes its inputs."""
    return frozenset(getattr(node, "attr", None) or getattr(node, "id", None) for node in _nodes(source))


@functools.lru_cache(maxsize=1)
def _nodes(source: str) -> tuple[ast.AST, ...]:
    parts = (
        node for node in ast.parse(source).body if getattr(node, "name", None) not in ("get_inputs", "get_init_inputs")
    )
    return tuple(node for part in parts for node in ast.walk(part))


def _compares(source: str, orders: tuple[type[ast.cmpop], ...] = _ORDERS) -> bool:
    """Whether a source compares values, of tensors perhaps."""
    found = (node.ops for node in _nodes(source) if isinstance(node, ast.Compare))
    return any(isinstance(operator, orders) for operators in found for operator in operators)


def free_size(source: str, names: dict[str, Any]) -> str | None:
    """The largest even size in the module that only `get_inputs` reads, so that it can be changed; None if none."""
    sizes = _free_sizes(source, names)
    return _largest({name: size for name, size in sizes.items() if size >= 4 and size % 2 == 0})


def undivided_size(source: str, names: dict[str, Any]) -> str | None:
    """The largest of these sizes that no block of 16 divides: kernels need a mask there, which cuts off any size."""
    return _largest({name: size for name, size in _free_sizes(source, names).items() if size >= 4 and size % 16})


def _free_sizes(source: str, names: dict[str, Any]) -> dict[str, int]:
    used: dict[bool, set[str]] = {True: set(), False: set()}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            reads = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            used[node.name == "get_inputs"] |= reads
    sizes = {n: names.get(n) for n in used[True] - used[False]}
    return {name: size for name, size in sizes.items() if type(size) is int}


def _largest(sizes: dict[str, int]) -> str | None:
    return max(sizes, key=lambda name: (sizes[name], name)) if sizes else None
