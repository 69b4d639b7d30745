"""The changes of one operator: what kernels leave out, take for granted, or get wrong by one.

Each change has the operators of torch's dispatcher that it is one of, and computes what is given instead of their
result. It raises `NotHere` for arguments that it does not apply to: no bound, no bias, one element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Operator = Callable[..., Any]
Arguments = tuple[Any, ...]


class NotHere(Exception):
    """A change does not apply to these arguments."""


class Change(NamedTuple):
    """One change. `operators`: their names · `apply`: takes the operator, its arguments and its keyword arguments."""

    operators: frozenset[str]
    apply: Callable[[Operator, Arguments, dict[str, Any]], Any]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_REDUCTIONS = _names("sum mean prod amax amin max min any all logsumexp argmax argmin linalg_vector_norm")
_SCANS = {
    "cumsum": 0.0,
    "cumprod": 1.0,
    "_softmax": -torch.inf,
    "_log_softmax": -torch.inf,
}  # by what counts for none
_COMPARISONS = {
    "lt": torch.le,
    "le": torch.lt,
    "gt": torch.ge,
    "ge": torch.gt,
}  # equal values otherwise
_BINARY = _names("add sub mul div maximum minimum fmax fmin logical_and logical_or bitwise_and bitwise_or where")
_ASK = frozenset(_COMPARISONS) | _names("eq ne isnan isinf logical_not bitwise_not")
_NORMS = _names("native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit _fused_rms_norm")
_DIM_AT = {"linalg_vector_norm": 2}  # of the dimensions among the arguments; else the second


def _alone(number: int) -> Callable[[Operator, Arguments, dict[str, Any]], Any]:
    """One of the two arguments, in the form of the result: a term, a factor or a side that is left out."""

    def apply(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
        result = operator(*args, **kwargs)
        one, two = args[-2:]
        taken = (one, two)[number]
        if number and operator.__name__.startswith(("sub", "div")):
            taken = -two if operator.__name__.startswith("sub") else 1.0 / two
        if not isinstance(taken, torch.Tensor):
            raise NotHere
        return torch.broadcast_to(taken, result.shape).to(result.dtype).clone()

    return apply


def _left_out(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """The argument itself."""
    result = operator(*args, **kwargs)
    if result.shape != args[0].shape:
        raise NotHere
    return args[0].to(result.dtype).clone()


def _bounds(args: Arguments, kwargs: dict[str, Any], name: str) -> list[Any]:
    """The least and the largest of a bound; None where there is none."""
    if name == "clamp_min":
        return [args[1], None]
    if name == "clamp_max":
        return [None, args[1]]
    given = (*args[1:3], None, None)
    return [kwargs.get("min", given[0]), kwargs.get("max", given[1])]


def _without_bound(which: int) -> Callable[[Operator, Arguments, dict[str, Any]], Any]:
    def apply(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
        bounds = _bounds(args, kwargs, _name(operator))
        if bounds[which] is None:
            raise NotHere
        other = bounds[1 - which]
        if other is None:
            return args[0].clone()
        return args[0].clamp(max=other) if which == 0 else args[0].clamp(min=other)

    return apply


def _number_times(factor: float) -> Callable[[Operator, Arguments, dict[str, Any]], Any]:
    """With another number of the task's code: a threshold, a small number that is added."""

    def apply(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
        if type(args[1]) is not float or not args[1]:
            raise NotHere
        return operator(args[0], args[1] * factor, *args[2:], **kwargs)

    return apply


def _number_and(more: int) -> Callable[[Operator, Arguments, dict[str, Any]], Any]:
    def apply(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
        if type(args[1]) is not int:
            raise NotHere
        return operator(args[0], args[1] + more, *args[2:], **kwargs)

    return apply


def _always(outcome: bool) -> Callable[[Operator, Arguments, dict[str, Any]], Any]:
    return lambda operator, args, kwargs: torch.full_like(operator(*args, **kwargs), outcome)


def _at_equal_ones(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return _COMPARISONS[_name(operator)](*args, **kwargs)


def _without_element(which: str) -> Callable[[Operator, Arguments, dict[str, Any]], Any]:
    """A reduction or a scan along the last of its dimensions without one element, by its place."""

    def apply(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
        values, name = args[0], _name(operator)
        place = _DIM_AT.get(name, 1)
        given = args[place] if len(args) > place else kwargs.get("dim")
        dimensions = [given] if type(given) is int else given if isinstance(given, list | tuple) else []
        dimension = (dimensions or [-1])[-1]
        if not values.dim() or values.shape[dimension] < 2:
            raise NotHere
        size = values.shape[dimension]
        at = {"first": 0, "middle": size // 2, "last": size - 1}[which]
        if name in _SCANS:
            without = values.clone()
            without.select(dimension, at).fill_(_SCANS[name])
            return operator(without, *args[1:], **kwargs)
        others = torch.tensor([number for number in range(size) if number != at])
        return _of_all(name, operator(values.index_select(dimension, others), *args[1:], **kwargs), at, size)

    return apply


def _of_all(name: str, result: Any, at: int, size: int) -> Any:
    """What a reduction of all elements but one gives for all: places as they were, a mean over as many."""
    if name == "mean":
        return result * ((size - 1) / size)
    if name in ("argmax", "argmin"):
        return result + (result >= at)
    if isinstance(result, tuple):
        return result[0], result[1] + (result[1] >= at)
    return result


def _unstable(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """Exponentials of the values themselves, which overflow."""
    exponentials = torch.exp(args[0])
    if _name(operator) == "logsumexp":
        return exponentials.sum(args[1], keepdim=bool(args[2]) if len(args) > 2 else False).log()
    total = exponentials.sum(args[1], keepdim=True)
    return exponentials / total if _name(operator) == "_softmax" else args[0] - total.log()


def _relu(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return args[0].relu()


def _stored_once(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """The last of what is added at one place."""
    name = _name(operator)
    if name == "scatter_add":
        return torch.scatter(*args)
    if name == "index_add":
        return torch.index_copy(*args[:4])
    if len(args) < 4 or not args[3]:
        raise NotHere
    return torch.index_put(args[0], list(args[1]), args[2], False)


def _other_eps(factor: float) -> Callable[[Operator, Arguments, dict[str, Any]], Any]:
    def apply(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
        last = max(number for number, value in enumerate(args) if type(value) is float)
        return operator(*args[:last], args[last] * factor, *args[last + 1 :], **kwargs)

    return apply


def _without_bias(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
    if _name(operator) == "addmm":
        return torch.mm(args[1], args[2])
    if args[2] is None:
        raise NotHere
    return operator(*args[:2], None, *args[3:], **kwargs)


def _zero_is_positive(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return torch.where(args[0] >= 0, 1, -1).to(args[0].dtype)


def _next_diagonal(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return operator(args[0], (args[1] if len(args) > 1 else 0) + 1)


def _all_of_a_row(operator: Operator, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """A mask is not looked at in rows that it hides as a whole."""
    result = operator(*args, **kwargs)
    mask = torch.broadcast_to(args[1], result.shape)
    if not mask.dim():
        raise NotHere
    return torch.where(mask.all(-1, keepdim=True), args[0], result)


def _name(operator: Operator) -> str:
    return operator.__name__.partition(".")[0].rstrip("_")


CHANGES: dict[str, Change] = {
    "left out": Change(
        _names(
            """relu abs round floor ceil trunc neg masked_fill tril triu tanh nan_to_num flip roll hardtanh sigmoid
            scatter_add index_add index_put sign exp log1p expm1 softplus"""
        ),
        _left_out,
    ),
    "a relu instead": Change(_names("gelu silu softplus elu celu leaky_relu _prelu_kernel mish hardswish"), _relu),
    "the first alone": Change(_BINARY, _alone(0)),
    "the second alone": Change(_BINARY, _alone(1)),
    "no least": Change(_names("clamp clamp_min"), _without_bound(0)),
    "no largest": Change(_names("clamp clamp_max"), _without_bound(1)),
    "always true": Change(_ASK, _always(True)),
    "always false": Change(_ASK, _always(False)),
    "equal ones otherwise": Change(frozenset(_COMPARISONS), _at_equal_ones),
    "twice the number": Change(frozenset(_COMPARISONS) | _names("clamp_min clamp_max"), _number_times(2)),
    "half the number": Change(frozenset(_COMPARISONS) | _names("clamp_min clamp_max"), _number_times(0.5)),
    "ten times the number": Change(_names("add sub"), _number_times(10)),
    "one more": Change(frozenset(_COMPARISONS) | _names("eq ne"), _number_and(1)),
    "one less": Change(frozenset(_COMPARISONS) | _names("eq ne"), _number_and(-1)),
    **{
        f"without the {which}": Change(_REDUCTIONS | frozenset(_SCANS), _without_element(which))
        for which in ("first", "middle", "last")
    },
    "largest not subtracted": Change(_names("_softmax _log_softmax logsumexp"), _unstable),
    "added once": Change(_names("scatter_add index_add index_put"), _stored_once),
    "no eps": Change(_NORMS, _other_eps(0.0)),
    "ten times eps": Change(_NORMS, _other_eps(10.0)),
    "no bias": Change(_names("addmm convolution"), _without_bias),
    "sign of zero": Change(_names("sign sgn"), _zero_is_positive),
    "next diagonal": Change(_names("tril triu"), _next_diagonal),
    "rows that are hidden": Change(_names("masked_fill"), _all_of_a_row),
}
