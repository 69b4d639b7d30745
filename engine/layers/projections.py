"""Projections of a decoder's layers: several linear layers as one product, in the layouts that compute it fastest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

_PACKED_ROWS = 8  # the number of rows for which packed weights are laid out; others are served as well
_HALVED_ROWS = 32  # up to so many rows, reading the weights takes longer than computing with them


class Halved:
    """Weights in 16 bits that lose nothing, up to a power of two; products with them are computed in float32.

    The layout and the product are FBGEMM's, which makes float32 of each weight as it reads it.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, exponent: int) -> None:
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight, None)
        self._bias = bias
        self._factor = 2.0**-exponent

    @classmethod
    def of(cls, weight: torch.Tensor, bias: torch.Tensor | None) -> Halved | None:
        """None where 16 bits would lose something, or torch lacks the product."""
        if "fbgemm" not in torch.backends.quantized.supported_engines:
            return None
        for exponent in (0, 15 - math.frexp(float(weight.abs().max()))[1]):  # the largest becomes 2**14 to 2**15
            scaled = weight * 2.0**exponent if exponent else weight
            if torch.equal(scaled.half().float(), scaled):
                return cls(scaled, bias, exponent)
        return None

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(…, width) → (…, outputs)."""
        product: torch.Tensor = torch.ops.quantized.linear_dynamic_fp16(inputs, self._packed)
        if self._factor != 1.0:
            product.mul_(self._factor)
        return product if self._bias is None else product.add_(self._bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """New weights of a projection, in all layouts that it computes with, and the parts that its layers hold."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    packed: torch.Tensor | None
    halved: Halved | None
    parts: list[tuple[Any, torch.Tensor]]  # a parameter of the layers, and its part of `weight` or `bias`


class Projection:
    """One or several linear layers with the same input, as one product.

    Their weights become parts of one tensor. On a CPU in float32 it is laid out transposed, which is fast for one row,
    and held again in oneDNN's layout, which is fastest for many. Few rows are bound by how fast weights can be read:
    for them, weights of which 16 bits lose nothing are held in these as well, and computed with in float32.
    """

    def __init__(self, *layers: Any, tied: bool = False) -> None:
        """`tied`: the parameter is the embedding's, and keeps its memory; the projection has a copy."""
        self._layers, self._tied = layers, tied
        self.adopt(self.packing({}))

    def packing(self, new: Mapping[Any, torch.Tensor]) -> Packing:
        """Lay out new weights, by the layers' parameters; a parameter that is not among them keeps its values."""
        packing = self.blank(self._layers[0].weight.device)
        for parameter, part in packing.parts:
            part.copy_(new.get(parameter, parameter.detach()))
        return self.complete(packing)

    def blank(self, device: torch.device) -> Packing:
        """Memory for new weights next to those that it has. Fill the parts, then have it completed."""
        weights = [layer.weight for layer in self._layers]
        biases = [layer.bias for layer in self._layers if layer.bias is not None]
        rows, width = sum(len(parameter) for parameter in weights), weights[0].shape[1]
        kind: dict[str, Any] = {"dtype": weights[0].dtype, "device": device}
        weight = torch.empty(width, rows, **kind).t() if self._packs() else torch.empty(rows, width, **kind)
        parts = list(zip(weights, torch.split(weight, [len(parameter) for parameter in weights]), strict=True))
        bias = torch.empty(sum(len(parameter) for parameter in biases), **kind) if biases else None
        if bias is not None:
            parts += zip(biases, torch.split(bias, [len(parameter) for parameter in biases]), strict=True)
        return Packing(weight=weight, bias=bias, packed=None, halved=None, parts=parts)

    def complete(self, packing: Packing) -> Packing:
        """A packing whose parts are filled, with the other layouts that the projection computes with."""
        if not self._packs():
            return packing
        packed = torch.ops.mkldnn._reorder_linear_weight(packing.weight, _PACKED_ROWS)
        return replace(packing, packed=packed, halved=Halved.of(packing.weight, packing.bias))

    def _packs(self) -> bool:
        weight = self._layers[0].weight
        has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return has_onednn and weight.device.type == "cpu" and weight.dtype == torch.float32

    def adopt(self, packing: Packing) -> None:
        """Compute with the weights of a packing from now on."""
        device = self._layers[0].weight.device
        if packing.weight.device == device:
            self._weight, self._bias = packing.weight, packing.bias
            for parameter, part in [] if self._tied else packing.parts:
                parameter.data = part
        else:  # the copy next to the device goes into the memory that is there
            self._weight.copy_(packing.weight)
            if self._bias is not None and packing.bias is not None:
                self._bias.copy_(packing.bias)
        self._packed, self._halved = packing.packed, packing.halved

    def release(self) -> None:
        """Give the weights' memory back; `adopt` brings others."""
        hollow_out(self._weight)
        if self._bias is not None:
            hollow_out(self._bias)
        self._packed = self._halved = None

    def take_again(self) -> None:
        """Have memory for weights again, where `adopt` copies into it."""
        for tensor in (self._weight, self._bias):
            if tensor is not None and tensor.device.type != "cpu":
                fill_out(tensor)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(…, width) → (…, outputs)."""
        num_rows = inputs.numel() // inputs.shape[-1]
        if self._halved is not None and num_rows <= _HALVED_ROWS:
            return self._halved(inputs)
        if self._packed is None or num_rows == 1:
            return functional.linear(inputs, self._weight, self._bias)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._packed, self._bias, "none", [], "")
        return product


def hollow_out(tensor: torch.Tensor) -> None:
    """Free a tensor's memory, for all views of it; shape, type and device stay."""
    if not tensor.untyped_storage().resizable():  # a file's memory, as models are loaded
        tensor.data = torch.empty_like(tensor)
    tensor.untyped_storage().resize_(0)


def fill_out(tensor: torch.Tensor) -> None:
    """Give a tensor, and all views of it, memory again; its values are undefined."""
    storage = tensor.untyped_storage()
    if not storage.size():
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        storage.resize_(int(tensor.storage_offset() + last + 1) * tensor.itemsize)
