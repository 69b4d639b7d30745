"""Causal attention over a row of segments: every token attends to its own sequence only.

Invariant: a segment's queries get the keys of its ancestors and, causally, its own. Keys of other sequences are not
masked but absent, so nothing can leak. It is registered in transformers' attention interface as `ATTENTION`, for model
families whose layers attend to the keys of the whole row; layers that carry a state along the row cannot be packed
(`can_pack`).

On CUDA in half precision, flash attention takes all segments of a row in one call: each has its own queries and, as
keys, those of its whole path, and attends causally from the end (`varlen_attn`). Elsewhere, in float32, and where keys
and values have different sizes, segments are computed one by one: roots causally, others with an explicit mask.
Nothing materialises the scores of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from weir.trainer.model.ops.prefix_tree import Segment

ATTENTION = "weir_segments"
PACKABLE_LAYERS = frozenset({"full_attention", "sliding_attention"})
# Without cuDNN, whose backward pass yields NaN with an explicit mask at some lengths (torch 2.13).
MOST_IN_A_HEAD, OLDEST = 256, (8, 0)  # what flash attention takes: dimensions, compute capability
_GROUPED: dict[str, Any] = (
    {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
)  # torch 2.11 needs no word
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens of one segment, one after the other, whose queries are computed together."""

    segment: int
    queries: int
    seen: int  # tokens of the segment up to the last of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A row as `varlen_attn` takes it: queries and keys of all pieces, one after the other."""

    query_ends: torch.Tensor  # (pieces + 1,) int32, from 0
    key_ends: torch.Tensor  # likewise
    most_queries: int
    most_keys: int
    keys: torch.Tensor | None  # (number of keys,) which of the row's tokens they are; None: all of them, in order


@dataclass(slots=True, kw_only=True)
class SegmentRow:
    """The segments of a row of T tokens, in order, and the pieces of it that are computed here: all, or a rank's.

    Not frozen, as torch.compile of torch 2.11 reads every field of a frozen one, and compiles layers for each row anew.
    """

    lengths: list[int]
    paths: list[list[int]]  # for each segment, the indices from its root to itself
    pieces: list[Piece]
    whole: Callable[[torch.Tensor], torch.Tensor] | None = None  # the row's keys and values from those of the pieces
    _masks: dict[tuple[int, int, int | None], torch.Tensor] = field(default_factory=dict)
    _packed: list[Packed] = field(default_factory=list)  # at most one, once it was asked for

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> SegmentRow:
        """The row of a forest's segments."""
        paths: list[list[int]] = []
        for index, segment in enumerate(segments):
            paths.append([*(paths[segment.parent] if segment.parent is not None else []), index])
        lengths = [len(segment.ids) for segment in segments]
        pieces = [Piece(segment=index, queries=length, seen=length) for index, length in enumerate(lengths)]
        return cls(lengths=lengths, paths=paths, pieces=pieces)

    def packed(self, device: torch.device) -> Packed:
        """The row's pieces on a device."""
        if not self._packed:
            starts = list(accumulate(self.lengths, initial=0))
            ranges = [
                [(starts[at], self.lengths[at]) for at in self.paths[piece.segment][:-1]]
                + [(starts[piece.segment], piece.seen)]
                for piece in self.pieces
            ]
            counts = [sum(length for _, length in held) for held in ranges]
            keys = torch.cat([torch.arange(start, start + length) for held in ranges for start, length in held])
            queries = [piece.queries for piece in self.pieces]
            as_ends = [torch.tensor([0, *accumulate(each)], dtype=torch.int32) for each in (queries, counts)]
            in_order = torch.equal(keys, torch.arange(starts[-1]))
            self._packed.append(
                Packed(
                    query_ends=as_ends[0].to(device, non_blocking=True),
                    key_ends=as_ends[1].to(device, non_blocking=True),
                    most_queries=max(queries),
                    most_keys=max(counts),
                    keys=None if in_order else keys.to(device, non_blocking=True),
                )
            )
        return self._packed[0]

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
    if takes_packed(query, value) and not dropout:
        return _packed_attention(query, key, value, segments.packed(query.device), scaling, sliding_window), None
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


def _packed_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    packed: Packed,
    scaling: float | None,
    window: int | None,
) -> torch.Tensor:
    computed = _computed_dtype(query)
    queries, keys, values = (tensor[0].transpose(0, 1).to(computed) for tensor in (query, key, value))  # (t, H, D)
    if packed.keys is not None:
        keys, values = keys.index_select(0, packed.keys), values.index_select(0, packed.keys)
    found = varlen_attn(
        queries,
        keys,
        values,
        packed.query_ends,
        packed.key_ends,
        packed.most_queries,
        packed.most_keys,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),
        **_GROUPED,
    )
    assert isinstance(found, torch.Tensor)
    return found[None]


def takes_packed(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether `varlen_attn` computes these: flash attention, for half precision and heads of one size, from Ampere."""
    return (
        query.device.type == "cuda"
        and _computed_dtype(query) in (torch.bfloat16, torch.float16)
        and value.shape[-1] == query.shape[-1] <= MOST_IN_A_HEAD
        and torch.cuda.get_device_capability(query.device) >= OLDEST
    )


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


# Never compiled: a row's segments are lists, which differ each time.
AttentionInterface.register(ATTENTION, torch.compiler.disable(segment_attention))  # type: ignore[no-untyped-call]
