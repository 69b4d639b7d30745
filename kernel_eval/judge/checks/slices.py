"""The slices of an answer along one dimension: each a few neighbouring indices, with enough elements to measure.

An element of a slice is compared with what is usual in it. Pure.
"""

from __future__ import annotations

import math

import torch

_MIN_ELEMENTS = 64  # fewer do not show a scale, and a slice of one would have no tolerance but its own


class Slices:
    """The slices of tensors of one shape along one dimension; the last may overlap the one before it."""

    def __init__(self, shape: torch.Size, dimension: int, width: int) -> None:
        self._dimension = dimension
        self._size = shape[dimension]
        self._width = width
        starts = (torch.arange(math.ceil(self._size / width)) * width).clamp(max=self._size - width)
        self._indices = starts[:, None] + torch.arange(width)  # (num_slices, width)
        self._spread = [-1 if d == dimension else 1 for d in range(len(shape))]

    def root_mean_square(self, magnitude: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
        """Of the counted elements of each slice; its shape broadcasts to that of `magnitude`."""
        return self._around((self._sums(magnitude.square()) / self._sums(counted).clamp(min=1)).sqrt())

    def quantile(self, values: torch.Tensor, share: float) -> torch.Tensor:
        """The value that this share of each slice does not exceed; its shape broadcasts to that of `values`."""
        rows = values.movedim(self._dimension, 0)[self._indices.to(values.device)].flatten(1)
        return self._around(rows.kthvalue(math.ceil(share * rows.shape[1]), dim=1).values)

    def _sums(self, values: torch.Tensor) -> torch.Tensor:
        others = [d for d in range(values.dim()) if d != self._dimension]
        sums = values.sum(others) if others else values  # (size,)
        return sums[self._indices.to(values.device)].sum(1)

    def _around(self, of_slices: torch.Tensor) -> torch.Tensor:
        """The value of the slice that each index lies in; shape (1, …, size, …, 1)."""
        return of_slices.repeat_interleave(self._width)[: self._size].view(self._spread)


def slices_of(shape: torch.Size) -> list[Slices]:
    """The slices along each dimension that has several; none for a shape with too few elements."""
    found = []
    for dimension, size in enumerate(shape):
        width = min(size, math.ceil(_MIN_ELEMENTS * size / max(1, shape.numel())))
        if width < size:
            found.append(Slices(shape, dimension, width))
    return found
