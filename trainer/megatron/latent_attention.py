"""Multi-head latent attention (arXiv 2405.04434, section 2.1) for packed rows, divided over tensor ranks by heads.

The narrow states of queries, keys and values are computed alike on all tensor ranks, or each for its tokens where these
divide the tokens (SP); what widens them is divided by heads. Megatron-core's own layer, without Transformer Engine,
divides the narrow ones by columns, and of the gradient of the keys with position keeps that by a rank's own heads.

Tensor ranks divide the tokens here always (`check_layout`), as Megatron-core's experts ask.

Invariant: the numbers are those of transformers' DeepSeek-V3; frequencies and scales come from there.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    gather_from_sequence_parallel_region,
)
from megatron.core.transformer.module import MegatronModule

from weir.trainer.megatron.architecture import Architecture
from weir.trainer.megatron.packed_attention import Norm, PackedAttention, RowParams

NARROW_EPS = 1e-6  # of the norms of narrow states, whatever config.json says of the others (transformers' class)


class LatentAttention(MegatronModule):  # type: ignore[misc]
    """Self-attention of one layer; s tokens of a rank are t / TP of its t where the tensor ranks divide them."""

    def __init__(self, config: Any, *, model: Architecture, **_: Any) -> None:
        super().__init__(config=config)
        assert model.latent is not None
        self.latent = latent = model.latent
        self.heads = model.heads // parallel_state.get_tensor_model_parallel_world_size()
        self.head = model.head
        of_heads: dict[str, Any] = {
            "config": config,
            "init_method": config.init_method,
            "bias": False,
            "skip_bias_add": False,
        }
        if latent.query_rank is not None:
            self.q_down = self._narrow(model.hidden, latent.query_rank)
            self.q_norm = Norm(config, latent.query_rank, NARROW_EPS)
        self.linear_q = ColumnParallelLinear(
            latent.query_rank or model.hidden, model.heads * model.head, gather_output=False, **of_heads
        )
        self.kv_down = self._narrow(model.hidden, latent.key_rank + latent.rotary)
        self.kv_norm = Norm(config, latent.key_rank, NARROW_EPS)
        self.linear_kv = ColumnParallelLinear(
            latent.key_rank, model.heads * (latent.plain + latent.value), gather_output=False, **of_heads
        )
        self.core_attention = PackedAttention(config, softmax_scale=latent.score_scale)
        self.linear_proj = RowParallelLinear(
            model.heads * latent.value, model.hidden, input_is_parallel=True, **(of_heads | {"skip_bias_add": True})
        )

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        packed_seq_params: RowParams,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """(s, 1, H) to (s, 1, H)."""
        latent, turn = self.latent, self._turned(packed_seq_params, hidden_states.dtype)
        narrow = hidden_states if latent.query_rank is None else self.q_norm(self.q_down(hidden_states))
        query = self.linear_q(narrow)[0].view(-1, self.heads, self.head)
        narrow, shared = self.kv_down(hidden_states).split([latent.key_rank, latent.rotary], dim=-1)
        wide = self.linear_kv(self.kv_norm(narrow))[0].view(-1, self.heads, latent.plain + latent.value)
        key, value = wide.split([latent.plain, latent.value], dim=-1)
        plain, placed = query.split([latent.plain, latent.rotary], dim=-1)
        gathered = gather_from_sequence_parallel_region(shared)  # backward it sums the gradients by all ranks' heads
        of_all = turn(gathered).expand(-1, self.heads, -1)
        attended = self.core_attention(
            torch.cat([plain, turn(placed)], dim=-1),
            torch.cat([key, of_all], dim=-1),
            value,
            attention_mask,
            packed_seq_params=packed_seq_params,
        )
        return self.linear_proj(attended)[0], None

    def _narrow(self, width: int, rank: int) -> torch.nn.Linear:
        """A matrix that every tensor rank holds; its gradient is added over them where they divide the tokens."""
        found = torch.nn.Linear(width, rank, bias=False, dtype=self.config.params_dtype)
        found.weight.sequence_parallel = self.config.sequence_parallel  # type: ignore[attr-defined]
        return found

    def _turned(self, row: RowParams, dtype: torch.dtype) -> Any:
        """What gives (t, n, R) numbers their position: neighbours are a pair, and come out half a head apart."""
        assert row.positions is not None
        frequencies = torch.tensor(self.latent.frequencies, device=row.positions.device)
        angles = row.positions[:, None].float() * frequencies
        cosine, sine = ((part * self.latent.rotary_scale).to(dtype)[:, None] for part in (angles.cos(), angles.sin()))

        def turn(states: torch.Tensor) -> torch.Tensor:
            even, odd = states[..., 0::2], states[..., 1::2]
            return torch.cat([even * cosine - odd * sine, odd * cosine + even * sine], dim=-1)

        return turn
