"""Rows of large inputs and answers, for what a part of them shows as well as all of them. Pure."""

from __future__ import annotations

from typing import Any

import torch

MANY = 1 << 22  # elements; fewer are looked at whole
_FEW = 1 << 20  # elements of a part


def rows(value: Any, size: int, at: slice) -> Any:
    """Some rows of an argument that has so many; any other stays."""
    return value[at] if isinstance(value, torch.Tensor) and value.dim() and len(value) == size else value


def every_nth(inputs: list[Any], outputs: list[torch.Tensor]) -> tuple[slice, list[Any]] | None:
    """The place of some rows of the outputs, spread evenly, and the inputs with these rows only.

    None where all are few, or the outputs have no rows in common.
    """
    sizes = {output.shape[:1] for output in outputs}
    num_elements = max(
        (tensor.numel() for tensor in (*inputs, *outputs) if isinstance(tensor, torch.Tensor)), default=0
    )
    if num_elements < MANY or len(sizes) != 1 or not (size := next(iter(sizes))) or size[0] < 2:
        return None
    at = slice(None, None, min(size[0], num_elements // _FEW))
    return at, [rows(value, size[0], at) for value in inputs]


def thinned(values: torch.Tensor) -> torch.Tensor:
    """Every n-th row of many values; of few, all."""
    step = 1 if values.numel() < MANY or values.dim() == 0 else min(len(values), values.numel() // _FEW)
    return values[::step] if step > 1 else values
