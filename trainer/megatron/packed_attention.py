"""Core attention and norm of the Megatron model: those of the torch backend, on CPUs and GPUs, for packed rows.

Invariant: a sequence's queries get its own keys only. With context parallelism keys and values of the whole row are
gathered over the group (the backward pass adds their gradients there), and each of a rank's two chunks of a sequence
attends to what comes before it. On a GPU in half precision flash attention takes all chunks in one call, as
`ops/segment_attention.py` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.module import MegatronModule

from weir.trainer.megatron.packed_row import PackedRow
from weir.trainer.model.ops.segment_attention import Piece, SegmentRow, segment_attention


@dataclass
class RowParams(PackedSeqParams):  # type: ignore[misc]
    """What Megatron-core's layers know of a row, and what ours need of it."""

    segments: SegmentRow = field(default_factory=lambda: SegmentRow.of([]))  # the sequences, and this rank's chunks
    places: torch.Tensor | None = None
    positions: torch.Tensor | None = None  # of this rank's tokens in their sequences
    often: torch.Tensor | None = None  # how often they count
    experts: torch.Tensor | None = None  # that their tokens go to, (t, layers × chosen)

    @classmethod
    def of(cls, row: PackedRow) -> RowParams:
        """The parameters of a row."""
        ends = torch.tensor([0, *row.lengths], device=row.ids.device).cumsum(0).int()
        longest = max(row.lengths)
        return cls(
            qkv_format="thd",
            cu_seqlens_q=ends,
            cu_seqlens_kv=ends,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
            segments=_segments(
                row.lengths,
                parallel_state.get_context_parallel_world_size(),
                parallel_state.get_context_parallel_rank(),
            ),
            places=row.places,
            positions=row.positions,
            often=row.often,
            experts=row.experts,
        )


def _segments(lengths: list[int], ranks: int, rank: int) -> SegmentRow:
    """The sequences of a row, and the chunks of them of which a rank has the queries."""
    pieces = []
    for at, length in enumerate(lengths):
        chunk = length // (2 * ranks)
        own = [(length, length)] if ranks == 1 else [(chunk, (of + 1) * chunk) for of in (rank, 2 * ranks - 1 - rank)]
        pieces += [Piece(segment=at, queries=queries, seen=seen) for queries, seen in own]
    return SegmentRow(lengths=lengths, paths=[[at] for at in range(len(lengths))], pieces=pieces)


class Norm(torch.nn.Module):
    """RMSNorm. Its gradient is added over the tensor ranks where these divide the tokens."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-6, **_: Any) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """(…, H) to (…, H)."""
        return F.rms_norm(states, (states.shape[-1],), self.weight, self.eps)


class PackedAttention(MegatronModule):  # type: ignore[misc]
    """Causal attention within the sequences of a row."""

    def __init__(self, config: Any, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__(config=config)
        self.scale = softmax_scale
        self.ranks = parallel_state.get_context_parallel_world_size()

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        packed_seq_params: RowParams,
        **_: Any,
    ) -> torch.Tensor:
        """(t, heads, d) of this rank's tokens to (t, 1, heads · d), with values of d numbers."""
        assert attention_mask is None
        key, value = (self._whole(tensor, packed_seq_params) for tensor in (key, value))
        heads, keys, values = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
        found = segment_attention(
            self, heads, keys, values, None, segments=packed_seq_params.segments, scaling=self.scale
        )[0]
        return found.reshape(query.shape[0], 1, -1)

    def _whole(self, tensor: torch.Tensor, row: RowParams) -> torch.Tensor:
        """Keys or values of the whole row, in the row's order."""
        if self.ranks == 1:
            return tensor
        gathered: torch.Tensor = gather_from_sequence_parallel_region(
            tensor.contiguous(), group=parallel_state.get_context_parallel_group()
        )
        return gathered[row.places]
