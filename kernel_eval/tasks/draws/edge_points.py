"""Edge points of tasks that work value by value, or are one operator: where functions turn, saturate or end.

The values are those that torch's own tests draw for such operators (OpInfo: `generate_elementwise_unary_small_` and
`..._large_value_tensors`), the neighbours of 0 and 1, and the numbers that the task gives to its operators: bounds,
thresholds; two are nearer to 0. Not drawn: infinities and NaN, and what OpInfo has beyond 1e5, since kernels may have
bounds of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from weir.kernel_eval.tasks.draws.places import any_of

_SMALL = (0.0, 0.001, 0.25, 0.5, 1.0, math.pi / 2, math.pi - 1e-5, math.pi, math.pi + 1e-5, 2 * math.pi)
_NEAR_ZERO = (1e-10, 1e-16)  # where what is added to a divisor counts
_LARGE = (501.0, 1001.2, 13437.7)
_BEYOND = 4.2, 4.8  # digits before the point


def at_edges(like: torch.Tensor, precision: torch.dtype, numbers: tuple[float, ...]) -> torch.Tensor:
    """Edge points of either sign in no order; shape and dtype of `like`. `precision`: that of the task's tensor."""
    eps, least = torch.finfo(precision).eps, torch.finfo(precision).tiny
    own = [number * factor for number in numbers for factor in (1 - eps, 1.0, 1 + eps)]
    near_zero = [point for point in _NEAR_ZERO if point > least]
    return any_of(_of_either_sign([*_SMALL, *near_zero, eps, 1 - eps, 1 + eps, *own]), like)


def large(like: torch.Tensor) -> torch.Tensor:
    """Large values of either sign, one of them any that half precision holds; shape and dtype of `like`."""
    beyond: float = 10.0 ** (_BEYOND[0] + (_BEYOND[1] - _BEYOND[0]) * float(torch.rand(())))
    return any_of(_of_either_sign([*_LARGE, beyond]), like)


def _of_either_sign(points: Sequence[float]) -> list[float]:
    return [*points, *(-point for point in points if point)]
