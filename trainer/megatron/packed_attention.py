"""Core attention and norm of the Megatron model: plain torch, on CPUs and GPUs, for packed rows.

Invariant: a sequence's queries get its own keys only. With context parallelism keys and values of the whole row are
gathered over the group (the backward pass adds their gradients there), and each of a rank's two chunks of a sequence
attends to what comes before it.
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
from torch.nn.attention import sdpa_kernel

from weir.trainer.megatron.packed_row import PackedRow
from weir.trainer.model.ops.segment_attention import KERNELS, takes_grouped_heads


@dataclass
class RowParams(PackedSeqParams):  # type: ignore[misc]
    """What Megatron-core's layers know of a row, and what ours need of it."""

    lengths: list[int] = field(default_factory=list)
    places: torch.Tensor | None = None
    positions: torch.Tensor | None = None  # of this rank's tokens in their sequences
    often: torch.Tensor | None = None  # how often they count

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
            lengths=row.lengths,
            places=row.places,
            positions=row.positions,
            often=row.often,
        )


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
        self.rank = parallel_state.get_context_parallel_rank()

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
        key, value = (self._whole(tensor, packed_seq_params) for tensor in (key, value))
        outputs, first, start = [], 0, 0
        with sdpa_kernel(KERNELS):
            for length in packed_seq_params.lengths:
                for queries, seen in self._chunks(length):
                    known = slice(start, start + seen)
                    outputs.append(_attend(query[first : first + queries], key[known], value[known], self.scale))
                    first += queries
                start += length
        return torch.cat(outputs).reshape(query.shape[0], 1, -1)

    def _chunks(self, length: int) -> list[tuple[int, int]]:
        """How many queries this rank has of each of its chunks of a sequence, and how many keys those see."""
        if self.ranks == 1:
            return [(length, length)]
        chunk = length // (2 * self.ranks)
        return [(chunk, (at + 1) * chunk) for at in (self.rank, 2 * self.ranks - 1 - self.rank)]

    def _whole(self, tensor: torch.Tensor, row: RowParams) -> torch.Tensor:
        """Keys or values of the whole row, in the row's order."""
        if self.ranks == 1:
            return tensor
        gathered: torch.Tensor = gather_from_sequence_parallel_region(
            tensor.contiguous(), group=parallel_state.get_context_parallel_group()
        )
        return gathered[row.places]


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
    """The last queries of a sequence: (q, heads, d) over (k, key heads, d) to (q, heads, d)."""
    ahead = key.shape[0] - query.shape[0]
    mask = None
    if ahead:
        mask = torch.ones(query.shape[0], key.shape[0], dtype=torch.bool, device=query.device).tril(ahead)
    queries, keys, values = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
    if not takes_grouped_heads(queries, mask):
        times = queries.shape[1] // keys.shape[1]
        keys, values = (tensor.repeat_interleave(times, dim=1) for tensor in (keys, values))
    found = F.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
    return found[0].transpose(0, 1)
