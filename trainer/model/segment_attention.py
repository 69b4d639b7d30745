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

from collections.abc import Sequence
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
class SegmentRow:
    """The segments of a row of T tokens, in order."""

    lengths: list[int]
    paths: list[list[int]]  # for each segment, the indices from its root to itself
    _masks: dict[tuple[int, int, int | None], torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> SegmentRow:
        """The row of a forest's segments."""
        paths: list[list[int]] = []
        for index, segment in enumerate(segments):
            paths.append([*(paths[segment.parent] if segment.parent is not None else []), index])
        return cls(lengths=[len(segment.ids) for segment in segments], paths=paths)

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
    """(1, H, T, D) queries and (1, H_kv, T, D) keys and values to (1, T, H, D)."""
    assert attention_mask is None and query.shape[0] == 1
    queries, keys, values = (tensor.split(segments.lengths, dim=2) for tensor in (query, key, value))  # type: ignore[no-untyped-call]
    outputs = []
    heads_per_key = query.shape[1] // key.shape[1]
    with sdpa_kernel(KERNELS):
        for own, path in zip(queries, segments.paths, strict=True):
            seen = keys[path[0]] if len(path) == 1 else torch.cat([keys[i] for i in path], dim=2)
            held = values[path[0]] if len(path) == 1 else torch.cat([values[i] for i in path], dim=2)
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


def takes_grouped_heads(query: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether the kernel for these queries takes fewer key heads than query heads.

    On CUDA only flash attention does, in half precision without a mask; others would materialise the scores.
    """
    device = query.device.type
    if device != "cuda":
        return True
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else query.dtype
    return mask is None and dtype in (torch.bfloat16, torch.float16)


def can_pack(model: Any) -> bool:
    """Whether all layers of a transformers model use the attention interface, and none carries a state."""
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ["full_attention"]
    return bool(getattr(model, "_supports_attention_backend", False)) and PACKABLE_LAYERS.issuperset(kinds)


AttentionInterface.register(ATTENTION, segment_attention)
