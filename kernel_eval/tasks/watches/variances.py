"""Variances of a kernel that subtracts the square of the mean from the mean square: off by a rounding of these.

Kernels read a row once so, where the reference reads it twice. On rows whose mean is far from zero that is less
precise, which nothing but the inputs decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

VARIANCES = frozenset(
    {"var", "std", "var_mean", "std_mean", "native_layer_norm", "native_group_norm", "native_batch_norm"}
)
_TRAINING = 5  # whose place among the arguments of a batch norm says whether it takes the batch's own variance

Off = Callable[[torch.Tensor], torch.Tensor]


def in_one_pass(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, off: Off) -> Any:
    """The result of an operator of `VARIANCES` with variances that are off; `off`: by how much, of mean squares."""
    value = args[0]
    if name == "native_layer_norm":
        out, mean, rstd = result
        dims = list(range(value.dim() - len(args[1]), value.dim()))
        return _rescaled(out, args[3], _ratio(rstd, value.square().mean(dims, keepdim=True), off)), mean, rstd
    if name == "native_group_norm":
        out, mean, rstd = result
        squares = value.reshape(*rstd.shape, -1).square().mean(-1)
        ratio = _ratio(rstd, squares, off).repeat_interleave(value.shape[1] // rstd.shape[1], 1)
        shift = None if args[2] is None else _of_channels(args[2], out)
        return _rescaled(out, shift, ratio.view(*ratio.shape, *[1] * (out.dim() - 2))), mean, rstd
    if name == "native_batch_norm":
        out, mean, rstd = result
        if not args[_TRAINING]:
            return result
        squares = value.square().mean([dim for dim in range(value.dim()) if dim != 1])
        ratio = _of_channels(_ratio(rstd, squares, off), out)
        return _rescaled(out, None if args[2] is None else _of_channels(args[2], out), ratio), mean, rstd
    found = result[0] if isinstance(result, tuple) else result
    along = args[1] if len(args) > 1 else kwargs.get("dim")
    squares = value.square().mean(along, keepdim=True).view(found.shape)
    is_root = name.startswith("std")
    variance = ((found.square() if is_root else found) + off(squares)).clamp_min(0)
    found = variance.sqrt() if is_root else variance
    return (found, *result[1:]) if isinstance(result, tuple) else found


def _ratio(rstd: torch.Tensor, squares: torch.Tensor, off: Off) -> torch.Tensor:
    """How many times as large results are by variances that are off; `rstd` has what is added to a variance in it."""
    least = torch.finfo(squares.dtype).tiny
    return ((rstd**-2 + off(squares)).clamp_min(least) ** -0.5) / rstd


def _rescaled(out: torch.Tensor, shift: torch.Tensor | None, ratio: torch.Tensor) -> torch.Tensor:
    return out * ratio if shift is None else (out - shift) * ratio + shift


def _of_channels(values: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *[1] * (out.dim() - 2))
