"""What operators of torch cost, in FLOPs and bytes, by the shapes of their tensors. The measure of `kernel_share`.

A matrix product of (M, K) and (K, N) has 2·M·N·K FLOPs, a convolution 2 for each value of the answer and each weight
that meets it, attention two products, distances 3 for each component, a Fourier transform 5·log2 of its length for each
element; another operator that computes has one for each element of its largest tensor. A FLOP of more than 4 bytes
counts as often as its digits can hold several: 4 times in double precision and in complex64, 16 times in complex128.
Bytes are those of all tensors that an operator reads and writes. Views cost nothing, copies no FLOPs. What an operator
costs that is not listed here (`einsum`, a decomposition, a recurrent layer, a general trilinear form), or whose record
names no result, is not known: if torch ran one, it may have done all of the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from weir.kernel_eval.ipc.trace import Operator, Place, operator_name, places
from weir.kernel_eval.judge.source.provenance import HELPERS
from weir.kernel_eval.judge.source.safe_operators import BY_INDEX, ELEMENTWISE, REDUCTIONS

_PRODUCTS = frozenset(["mm", "bmm", "mv", "dot", "vdot", "linear", "matmul", "_int_mm", "_scaled_mm"])
_ADDED_PRODUCTS = frozenset(["addmm", "baddbmm", "addmv", "_addmm_activation"])  # their first operand is added
_CONVOLUTIONS = frozenset(["convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution"])
_ATTENTION = "_scaled_dot_product"
_FOURIER = "_fft_"
_FLOPS_OF_FOURIER = 5
_FLOPS_OF_DISTANCE = 3
_SINGLE_BYTES = 4
_LAYERS = (
    "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _fused_rms_norm "
    "mse_loss smooth_l1_loss huber_loss l1_loss nll_loss_forward nll_loss2d_forward "
    "binary_cross_entropy glu softshrink hardshrink prelu _prelu_kernel rrelu_with_noise native_dropout "
    "avg_pool1d avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d upsample_nearest1d upsample_nearest2d "
    "upsample_bilinear2d one_hot masked_fill index_put_ scatter_reduce bernoulli"
)
# which have a FLOP or a few for each element of their largest tensor
_BY_ELEMENT = frozenset(f"{ELEMENTWISE} {REDUCTIONS} {BY_INDEX} {_LAYERS}".split())


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
    return Cost(_flops(name, read, written) * _width(read), moved)


def is_known(name: str) -> bool:
    """Whether the cost of an operator follows from the shapes of its tensors, by its name without namespace."""
    plain = name.rstrip("_")
    listed = _PRODUCTS | _ADDED_PRODUCTS | _CONVOLUTIONS | HELPERS | _BY_ELEMENT | {"_cdist_forward"}
    return bool({name, plain} & listed) or name.startswith((_ATTENTION, _FOURIER))


def share_of_kernels(steps: Sequence[Operator], whole: Cost) -> float:
    """The part of a task's work that torch did not do in recorded steps; none if the cost of one is not known."""
    if not all(is_known(operator_name(step)) and step.results for step in steps):
        return 0.0
    return kernel_share(cost_of_steps(steps), whole)


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


def _width(read: Sequence[Size]) -> int:
    """How often a FLOP counts: two factors of twice the digits hold four products, some of which can be taken apart."""
    return max(1, max((size.item_bytes for size in read), default=1) // _SINGLE_BYTES) ** 2


def _flops(name: str, read: Sequence[Size], written: Sequence[Size]) -> int:
    made, name = sum(size.numel for size in written), name.rstrip("_")
    if name in HELPERS:
        return 0
    if name in _PRODUCTS and read:
        return 2 * made * (read[0].shape[-1] if read[0].shape else 1)
    if name in _ADDED_PRODUCTS and len(read) > 1:
        return 2 * made * (read[1].shape[-1] if read[1].shape else 1)
    if name in _CONVOLUTIONS and len(read) > 1 and written:
        weight = read[1]
        is_transposed = written[0].shape[1] != weight.shape[0]  # its weights are (channels in, channels out, ...)
        return 2 * (read[0].numel if is_transposed else made) * (weight.numel // weight.shape[0])
    if name.startswith(_ATTENTION) and len(read) > 1:
        values = read[2] if len(read) > 2 else read[1]  # whose width may be another than that of the keys
        pairs = read[0].numel // max(1, read[0].shape[-1]) * read[1].shape[-2]
        return 2 * pairs * (read[0].shape[-1] + values.shape[-1])
    if name == "_cdist_forward" and read:
        return _FLOPS_OF_DISTANCE * made * read[0].shape[-1]
    if name == "_trilinear" and len(read) > 1:
        return 2 * (read[0].numel // max(1, read[0].shape[-1])) * read[1].numel
    largest = max((size.numel for size in (*read, *written)), default=0)
    if name.startswith(_FOURIER):
        length = max((side for size in (*read, *written) for side in size.shape), default=1)
        return _FLOPS_OF_FOURIER * largest * max(1, length.bit_length() - 1)
    return largest


def _size(place: Place) -> Size:
    digits = "".join(character for character in place.dtype.partition("_")[0] if character.isdigit())
    return Size(place.shape, int(digits) // 8 if digits else 1)
