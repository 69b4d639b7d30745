"""The slices of an answer along one dimension: each a few neighbouring indices, with enough elements to measure.

An element of a slice is compared with what is usual in it. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

_PIECE = 1 << 20  # elements that are looked at together
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

    @property
    def dimension(self) -> int:
        """The dimension that they lie along."""
        return self._dimension

    def root_mean_square(self, squares: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Of each slice; its shape broadcasts to that of the tensor.

        `squares`, `counts`: for each index of the dimension the sum of squares and the number of elements; (size,).
        """
        indices = self._indices.to(squares.device)
        return self._around((squares[indices].sum(1) / counts[indices].sum(1).clamp(min=1)).sqrt())

    def quantile(self, values: torch.Tensor, share: float) -> torch.Tensor:
        """The value that this share of each slice does not exceed; its shape broadcasts to that of `values`."""
        num_elements = values.numel() // self._size * self._width  # of a slice
        found = []
        for indices in torch.split(self._indices.to(values.device), max(1, _PIECE // num_elements)):
            rows = values.index_select(self._dimension, indices.reshape(-1)).movedim(self._dimension, 0)
            rows = rows.reshape(len(indices), num_elements)
            found.append(rows.kthvalue(math.ceil(share * num_elements), dim=1).values)
        return self._around(torch.cat(found))

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


def pieces_of(shape: torch.Size) -> Iterator[tuple[slice, ...]]:
    """Indices that cut a tensor of this shape into pieces of few elements each, which keep all dimensions."""
    rest, whole = shape.numel(), 0
    while whole < len(shape) and rest > _PIECE:  # dimensions whose indices are taken one by one, but for the last
        rest //= shape[whole]
        whole += 1
    steps = [1] * (whole - 1) + ([max(1, _PIECE // max(1, rest))] if whole else [])
    starts = [range(0, size, step) for size, step in zip(shape, steps, strict=False)]
    for start in itertools.product(*starts):
        cut = [slice(at, at + step) for at, step in zip(start, steps, strict=True)]
        yield (*cut, *(slice(None) for _ in shape[whole:]))
