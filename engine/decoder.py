"""The model's forward pass over the slot cache: whole prompts, or one token for each running row.

It computes the layers of transformers' classes (Qwen3, Qwen3-MoE, Qwen2, Llama) from their own weights, with its own
masks and positions, so that rows may have any lengths, and with fewer and larger operations than the classes use.
Invariants: a row's result does not depend on other rows, up to rounding; the model's parameters hold the weights, and
only `adopt` changes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from weir.engine.kv_cache import SlotCache
from weir.engine.layers.decoder_layer import Layer, Mixture, layer_of
from weir.engine.layers.projections import Packing, Projection, fill_out, hollow_out


@dataclass(frozen=True, slots=True)
class Blank:
    """Memory for new weights of a whole model, laid out as the decoder computes with them."""

    packings: list[tuple[Projection, Packing]]
    places: dict[Any, torch.Tensor]  # where each parameter's new values belong, by the model's parameters

    def parts(self) -> Iterator[tuple[Any, torch.Tensor]]:
        """The parameters of the projections, and their parts of the packings."""
        for _, packing in self.packings:
            yield from packing.parts


@dataclass(frozen=True, slots=True)
class Prepared:
    """New weights of a whole model, laid out as the decoder computes with them."""

    packings: list[tuple[Projection, Packing]]
    others: list[tuple[Any, torch.Tensor]]  # parameters outside the projections, and their new values

    def blank(self) -> Blank:
        """Its memory, for other weights."""
        packings = [(held, replace(packing, packed=None, halved=None)) for held, packing in self.packings]
        return Blank(packings, self.values())

    def values(self) -> dict[Any, torch.Tensor]:
        """The new values of every parameter."""
        parts = (part for _, packing in self.packings for part in packing.parts)
        return dict([*parts, *self.others])


class Decoder:
    """A causal language model and its cache. One thread owns it."""

    def __init__(self, model: Any, *, max_rows: int, max_length: int) -> None:
        config = model.config
        self.model = model
        self.vocab_size: int = config.vocab_size
        weight = model.get_input_embeddings().weight
        self.device: torch.device = weight.device
        self._num_kv_heads = config.num_key_value_heads
        self._num_heads = config.num_attention_heads
        self._head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._layers = [layer_of(layer, config) for layer in model.model.layers]
        self.num_chosen: int = getattr(config, "num_experts_per_tok", None) or 0  # experts of a token in a layer
        self._tied = weight if model.lm_head.weight is weight else None
        self._head = Projection(model.lm_head, tied=self._tied is not None)
        self._adopted: Prepared | None = None
        self._spare: Blank | None = None  # of weights that are served no longer
        self.cache = SlotCache(
            num_layers=config.num_hidden_layers,
            num_kv_heads=config.num_key_value_heads,
            head_dim=self._head_dim,
            max_rows=max_rows,
            max_length=max_length,
            dtype=weight.dtype,
            device=weight.device,
            num_chosen=self.num_chosen,
        )

    def prepare(self, tensors: dict[str, torch.Tensor]) -> Prepared:
        """Lay out new weights, by their names in the model, next to those that are served; from any thread."""
        blank = self.blank()
        with torch.inference_mode(False), torch.no_grad():
            for name, parameter in self.model.state_dict(keep_vars=True).items():
                if name in tensors:
                    blank.places[parameter].copy_(tensors[name])
        return self.complete(blank)

    def blank(self) -> Blank:
        """Memory for the weights of every parameter, in the host's, next to those that are served; from any thread.

        It is that of the weights before these, where they came prepared: memory that is touched for the first time is
        written at a fifth of the rate.
        """
        spare, self._spare = self._spare, None
        if spare is not None:
            return spare
        host = torch.device("cpu")
        with torch.inference_mode(False), torch.no_grad():
            packings = [(projection, projection.blank(host)) for projection in self._projections()]
            places = {parameter: part for _, packing in packings for parameter, part in packing.parts}
            for parameter in self.model.state_dict(keep_vars=True).values():
                if parameter not in places or parameter is self._tied:
                    places[parameter] = torch.empty(parameter.shape, dtype=parameter.dtype, device=host)
            return Blank(packings, places)

    def complete(self, blank: Blank) -> Prepared:
        """Weights that fill a blank, ready to be adopted; from any thread."""
        with torch.inference_mode(False), torch.no_grad():
            for parameter, part in blank.parts():
                if part is not blank.places[parameter]:  # the head's copy of a tied embedding
                    part.copy_(blank.places[parameter])
            packings = [(projection, projection.complete(packing)) for projection, packing in blank.packings]
            held = {parameter for parameter, part in blank.parts() if part is blank.places[parameter]}
            others = [(parameter, place) for parameter, place in blank.places.items() if parameter not in held]
            return Prepared(packings, others)

    def adopt(self, prepared: Prepared) -> None:
        """Serve prepared weights from the next step on. On a CPU nothing is copied."""
        with torch.inference_mode(False), torch.no_grad():
            for projection, packing in prepared.packings:
                projection.adopt(packing)
            for parameter, tensor in prepared.others:
                if parameter.device == tensor.device:
                    parameter.data = tensor
                else:
                    parameter.copy_(tensor)
        if self.device.type == "cpu":
            self._adopted, prepared_before = prepared, self._adopted
            self._spare = prepared_before.blank() if prepared_before is not None else None
        else:
            self._spare = prepared.blank()

    def release(self) -> None:
        """Give the memory of all weights back. Nothing can be computed until `adopt` has brought others."""
        self._adopted = self._spare = None
        with torch.inference_mode(False), torch.no_grad():
            for projection in self._projections():
                projection.release()
            for parameter in self.model.parameters():
                hollow_out(parameter)

    def take_again(self) -> None:
        """Have memory for weights again, where `adopt` copies into it."""
        with torch.inference_mode(False), torch.no_grad():
            for projection in self._projections():
                projection.take_again()
            for parameter in self.model.parameters():
                if parameter.device.type != "cpu":
                    fill_out(parameter)

    def _projections(self) -> Iterator[Projection]:
        for layer in self._layers:
            yield from (layer.heads, layer.attention_out, *layer.mlp.projections())
        yield self._head

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
        return self._head(hidden).float()

    def _length_mask(self, positions: torch.Tensor, longest: int) -> torch.Tensor:
        behind = torch.arange(longest, device=self.device) > positions[:, None]  # (n, longest)
        mask = torch.zeros(behind.shape, dtype=self.model.dtype, device=self.device)
        return mask.masked_fill_(behind, float("-inf"))[:, None, None]

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Token ids (n, t) at `positions` (n, t) → hidden states (n, t, width)."""
        body = self.model.model
        hidden: torch.Tensor = body.embed_tokens(ids)
        cos, sin = body.rotary_emb(hidden, positions)  # (n, t, head dim) each
        half = self._head_dim // 2
        cos, sin = cos[:, :, None], torch.cat([-sin[..., :half], sin[..., half:]], -1)[:, :, None]
        for number, layer in enumerate(self._layers):
            attended = self._attention(layer, number, _normed(layer.before_attention, hidden), (cos, sin), mask)
            hidden = hidden + layer.attention_out(attended)
            inputs = _normed(layer.before_mlp, hidden)
            if isinstance(layer.mlp, Mixture):
                mixed, chosen = layer.mlp(inputs)
                self.cache.route(number, chosen)
            else:
                mixed = layer.mlp(inputs)
            hidden = hidden + mixed
        return _normed(body.norm, hidden)

    def _attention(
        self,
        layer: Layer,
        number: int,
        inputs: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """(n, t, width) → what each head attends to, (n, t, heads × head dim)."""
        n, t, _ = inputs.shape
        num_heads, num_kv_heads = self._num_heads, self._num_kv_heads
        heads = layer.heads(inputs).view(n, t, num_heads + 2 * num_kv_heads, self._head_dim)
        turned, values = torch.split(heads, [num_heads + num_kv_heads, num_kv_heads], 2)
        if layer.query_norm is not None:
            queries, keys = torch.split(turned, [num_heads, num_kv_heads], 2)
            turned = torch.cat([_normed(layer.query_norm, queries), _normed(layer.key_norm, keys)], 2)
        cos, sin = rotary
        turned = torch.addcmul(turned * cos, turned.roll(self._head_dim // 2, -1), sin)
        queries, keys = torch.split(turned.transpose(1, 2), [num_heads, num_kv_heads], 1)
        keys, values = self.cache.update(keys, values.transpose(1, 2), number)
        if t == 1:  # the queries that share keys and values stand in for a sequence of queries
            queries = queries.reshape(n, num_kv_heads, -1, self._head_dim)
            attended = functional.scaled_dot_product_attention(queries, keys, values, mask)
            return attended.reshape(n, 1, -1)
        share = num_heads // num_kv_heads
        shares_by_itself = self.device.type == "cpu"  # elsewhere torch's fast kernels share no keys under a mask
        if share > 1 and not shares_by_itself:
            keys, values = (held.repeat_interleave(share, 1) for held in (keys, values))
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, mask, is_causal=mask is None, enable_gqa=share > 1 and shares_by_itself
        )
        return attended.transpose(1, 2).reshape(n, t, -1)


def _normed(norm: Any, inputs: torch.Tensor) -> torch.Tensor:
    """Root mean square normalisation by a module of transformers; in float32 without the passes of torch's rms_norm."""
    if inputs.dtype == torch.float32:
        lengths = torch.linalg.vector_norm(inputs, dim=-1, keepdim=True)
        inverse = (lengths.square_() / inputs.shape[-1]).add_(norm.variance_epsilon).rsqrt_()
        normed: torch.Tensor = (inputs * inverse).mul_(norm.weight)
    else:
        normed = norm(inputs)
    return normed
