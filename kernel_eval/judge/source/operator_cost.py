"""What operators of torch cost, in FLOPs and bytes, by the shapes of their tensors. The measure of `kernel_share`.

A matrix product of (M, K) and (K, N) has 2·M·N·K FLOPs, a convolution 2 for each value of the answer and each weight
that meets it, attention two products; another operator that computes has one for each element of its largest tensor.
Bytes are those of all tensors that an operator reads and writes. Views cost nothing, copies no FLOPs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from weir.kernel_eval.ipc.trace import Operator, Place, places
from weir.kernel_eval.judge.source.provenance import HELPERS, operator_name

_PRODUCTS = frozenset(["mm", "bmm", "mv", "dot", "vdot", "linear", "_int_mm", "_scaled_mm"])
_ADDED_PRODUCTS = frozenset(["addmm", "baddbmm", "addmv", "addbmm"])  # their first operand is added
_ATTENTION = "_scaled_dot_product"


class Size(NamedTuple):
    """Shape and element size, in bytes, of a tensor."""

    shape: Sequence[int]
    item_bytes: int

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


class Cost(NamedTuple):
    """FLOPs and bytes."""

    flops: int = 0
    bytes: int = 0

    def plus(self, other: Cost) -> Cost:
        """The sum."""
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


def cost_of(name: str, read: Sequence[Size], written: Sequence[Size]) -> Cost:
    """The cost of one operator, by its name without namespace and overload."""
    moved = sum(size.numel * size.item_bytes for size in (*read, *written))
    return Cost(_flops(name, read, written), moved)


def cost_of_steps(steps: Iterable[Operator]) -> Cost:
    """The cost of recorded operators together."""
    total = Cost()
    for step in steps:
        read = [_size(place) for place in places([*step.arguments, *step.keywords.values()])]
        total = total.plus(cost_of(operator_name(step), read, [_size(place) for place in step.results]))
    return total


def kernel_share(by_torch: Cost, whole: Cost) -> float:
    """The part of a task's work that torch did not do, in [0, 1]: by FLOPs or by bytes, whichever is less."""
    parts = [used / of for used, of in zip(by_torch, whole, strict=True) if of]
    return round(min(1.0, max(0.0, 1.0 - max(parts, default=0.0))), 4)


def _flops(name: str, read: Sequence[Size], written: Sequence[Size]) -> int:
    made, name = sum(size.numel for size in written), name.rstrip("_")
    if name in HELPERS:
        return 0
    if name in _PRODUCTS and read:
        return 2 * made * (read[0].shape[-1] if read[0].shape else 1)
    if name in _ADDED_PRODUCTS and len(read) > 1:
        return 2 * made * (read[1].shape[-1] if read[1].shape else 1)
    if "convolution" in name and len(read) > 1 and written:
        weight = read[1]
        is_transposed = written[0].shape[1] != weight.shape[0]  # its weights are (channels in, channels out, ...)
        return 2 * (read[0].numel if is_transposed else made) * (weight.numel // weight.shape[0])
    if name.startswith(_ATTENTION) and len(read) > 1:
        return 4 * read[0].numel * read[1].shape[-2]
    return max((size.numel for size in (*read, *written)), default=0)


def _size(place: Place) -> Size:
    digits = "".join(character for character in place.dtype.partition("_")[0] if character.isdigit())
    return Size(place.shape, int(digits) // 8 if digits else 1)
