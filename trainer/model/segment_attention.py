"""Causal attention over a row of segments: every token attends to its own sequence only.

Invariant: a segment's queries get the keys of its ancestors and, causally, its own. Keys of other sequences are not
masked but absent, so nothing can leak. It is registered in transformers' attention interface as `ATTENTION`, for model
families whose layers attend to the keys of the whole row; layers that carry a state along the row cannot be packed
(`can_pack`).

CPU and GPU run the same code. On CUDA, root segments use flash attention and others the memory-efficient kernel with an
explicit mask; neither materialises the scores. FlexAttention would handle a row in one kernel, but has no backward pass
on CPUs (torch 2.13), so it could not be verified there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface

from weir.trainer.model.prefix_tree import Segment

ATTENTION = "weir_segments"
PACKABLE_LAYERS = frozenset({"full_attention", "sliding_attention"})
# Without cuDNN, whose backward pass yields NaN with an explicit mask at some lengths (torch 2.13).
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens of one segment, one after the other, whose queries are computed together."""

    segment: int
    queries: int
    seen: int  # tokens of the segment up to the last of them


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    """The segments of a row of T tokens, in order, and the pieces of it that are computed here: all, or a rank's."""

    lengths: list[int]
    paths: list[list[int]]  # for each segment, the indices from its root to itself
    pieces: list[Piece]
    whole: Callable[[torch.Tensor], torch.Tensor] | None = None  # the row's keys and values from those of the pieces
    _masks: dict[tuple[int, int, int | None], torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> SegmentRow:
        """The row of a forest's segments."""
        paths: list[list[int]] = []
        for index, segment in enumerate(segments):
            paths.append([*(paths[segment.parent] if segment.parent is not None else []), index])
        lengths = [len(segment.ids) for segment in segments]
        pieces = [Piece(segment=index, queries=length, seen=length) for index, length in enumerate(lengths)]
        return cls(lengths=lengths, paths=paths, pieces=pieces)

    def mask(self, queries: int, keys: int, window: int | None, device: torch.device) -> torch.Tensor | None:
        """The (queries, keys) bool mask of the last `queries` positions over `keys`; None for causal attention."""
        if queries == keys and (window is None or keys <= window):
            return None
        found = self._masks.get((queries, keys, window))
        if found is None:
            ahead = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
            found = (ahead >= 0) if window is None else (ahead >= 0) & (ahead < window)
            self._masks[queries, keys, window] = found
        return found


def segment_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    segments: SegmentRow,
    scaling: float | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """(1, H, t, D) queries and (1, H_kv, t, D) keys and values, of the row's pieces, to (1, t, H, D)."""
    assert attention_mask is None and query.shape[0] == 1
    if segments.whole is not None:
        computed = _computed_dtype(query)
        key, value = segments.whole(torch.cat([key.to(computed), value.to(computed)]))[:, None]
    queries = query.split([piece.queries for piece in segments.pieces], dim=2)  # type: ignore[no-untyped-call]
    keys, values = (tensor.split(segments.lengths, dim=2) for tensor in (key, value))  # type: ignore[no-untyped-call]
    outputs = []
    heads_per_key = query.shape[1] // key.shape[1]
    with sdpa_kernel(KERNELS):
        for own, piece in zip(queries, segments.pieces, strict=True):
            path = segments.paths[piece.segment]
            seen, held = (_known(tensors, path, piece.seen) for tensors in (keys, values))
            mask = segments.mask(own.shape[2], seen.shape[2], sliding_window, own.device)
            if not takes_grouped_heads(own, mask):
                seen, held = (tensor.repeat_interleave(heads_per_key, dim=1) for tensor in (seen, held))
            outputs.append(
                F.scaled_dot_product_attention(
                    own,
                    seen,
                    held,
                    attn_mask=mask,
                    dropout_p=dropout,
                    is_causal=mask is None,
                    scale=scaling,
                    enable_gqa=own.shape[1] != seen.shape[1],
                )
            )
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _known(tensors: Sequence[torch.Tensor], path: Sequence[int], seen: int) -> torch.Tensor:
    """The tensor's tokens on a path, of its last segment the first `seen`."""
    own = tensors[path[-1]][:, :, :seen]
    return own if len(path) == 1 else torch.cat([*(tensors[i] for i in path[:-1]), own], dim=2)


def _computed_dtype(query: torch.Tensor) -> torch.dtype:
    device = query.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else query.dtype


def takes_grouped_heads(query: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether the kernel for these queries takes fewer key heads than query heads.

    On CUDA only flash attention does, in half precision without a mask; others would materialise the scores.
    """
    if query.device.type != "cuda":
        return True
    return mask is None and _computed_dtype(query) in (torch.bfloat16, torch.float16)


def can_pack(model: Any) -> bool:
    """Whether all layers of a transformers model use the attention interface, and none carries a state."""
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ["full_attention"]
    return bool(getattr(model, "_supports_attention_backend", False)) and PACKABLE_LAYERS.issuperset(kinds)


AttentionInterface.register(ATTENTION, segment_attention)
