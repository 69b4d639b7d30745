"""The model's forward pass over the slot cache: whole prompts, or one token for each running row.

It runs the layers of transformers' classes (Qwen3, Qwen2, Llama) with its own masks and positions, so that rows may
have any lengths. Invariant: a row's result does not depend on other rows, up to rounding.
"""

from __future__ import annotations

from typing import Any

import torch

from weir.engine.kv_cache import SlotCache


class Decoder:
    """A causal language model and its cache. One thread owns it."""

    def __init__(self, model: Any, *, max_rows: int, max_length: int) -> None:
        config = model.config
        self.model = model
        self.vocab_size: int = config.vocab_size
        weight = model.get_input_embeddings().weight
        self.device: torch.device = weight.device
        self.cache = SlotCache(
            num_layers=config.num_hidden_layers,
            num_kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            max_rows=max_rows,
            max_length=max_length,
            dtype=weight.dtype,
            device=weight.device,
        )

    def prefill(self, prompts: list[list[int]], first_row: int) -> torch.Tensor:
        """Process whole prompts as rows from `first_row` on; returns hidden states (len(prompts), longest, width).

        Prompts are padded on the right, where the causal mask hides padding from all real tokens.
        """
        longest = max(map(len, prompts))
        ids = torch.tensor([prompt + [0] * (longest - len(prompt)) for prompt in prompts], device=self.device)
        positions = torch.arange(longest, device=self.device).expand(len(prompts), -1)
        self.cache.reserve(first_row + len(prompts), longest)
        self.cache.begin_prefill(first_row)
        return self._forward(ids, positions, None)

    def extend(self, prompts: list[list[int]], starts: list[int], first_row: int) -> torch.Tensor:
        """Process the prompts' tokens from `starts` on, as rows from `first_row` on that hold the tokens before.

        Every prompt has at least one token to process. Returns the hidden states of these, (len(prompts), most of them,
        width), padded on the right.
        """
        rests = [prompt[start:] for prompt, start in zip(prompts, starts, strict=True)]
        most, longest = max(map(len, rests)), max(map(len, prompts))
        ids = torch.tensor([rest + [0] * (most - len(rest)) for rest in rests], device=self.device)
        positions = torch.tensor(starts, device=self.device)[:, None] + torch.arange(most, device=self.device)
        self.cache.begin_extend(first_row, starts, [len(prompt) for prompt in prompts])
        behind = torch.arange(longest, device=self.device) > positions[..., None]  # (n, most, longest)
        mask = torch.zeros(behind.shape, dtype=self.model.dtype, device=self.device)
        return self._forward(ids, positions, mask.masked_fill_(behind, float("-inf"))[:, None])

    def decode(self, tokens: torch.Tensor, positions: torch.Tensor, *, longest: int, equal: bool) -> torch.Tensor:
        """One token (n,) for each of the first n rows, at `positions` (n,); returns logits (n, vocabulary), float32.

        `longest` is the length of the longest row with its new token; `equal` says that all rows are that long.
        """
        self.cache.reserve(tokens.shape[0], longest)
        self.cache.begin_decode(positions, longest)
        mask = None if equal else self._length_mask(positions, longest)
        return self.logits(self._forward(tokens[:, None], positions[:, None], mask)[:, 0])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(…, width) → (…, vocabulary), float32."""
        logits: torch.Tensor = self.model.lm_head(hidden).float()
        return logits

    def _length_mask(self, positions: torch.Tensor, longest: int) -> torch.Tensor:
        behind = torch.arange(longest, device=self.device) > positions[:, None]  # (n, longest)
        mask = torch.zeros(behind.shape, dtype=self.model.dtype, device=self.device)
        return mask.masked_fill_(behind, float("-inf"))[:, None, None]

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        body = self.model.model
        hidden: torch.Tensor = body.embed_tokens(ids)
        rotary = body.rotary_emb(hidden, positions)
        for layer in body.layers:
            hidden = layer(
                hidden,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=self.cache,
                position_embeddings=rotary,
                use_cache=True,
            )
        normed: torch.Tensor = body.norm(hidden)
        return normed
