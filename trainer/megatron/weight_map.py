"""Which rows and columns of a Hugging Face folder's tensors make up a rank's part of each Megatron parameter.

Invariant: the parts of all ranks of a copy of the model cover every stored tensor, and the map is used in both
directions, for weights, gradients and moments. A parameter is its pieces one below the other; what remains at its end
is padding of the vocabulary, which is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from megatron.core import parallel_state

from weir.trainer.megatron.architecture import Architecture, Experts, Latent
from weir.trainer.megatron.packed_model import first_layers, padded_vocabulary
from weir.trainer.settings.megatron import MegatronSettings

Shape = tuple[int, ...]

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
NORM = "model.norm.weight"
EXPERT_BIAS = "gate.e_score_correction_bias"


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows `start` to `stop` of a stored tensor; with `columns`, only those."""

    name: str
    start: int
    stop: int
    columns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This process's place in the layout."""

    tensor: int
    tensors: int
    expert: int
    experts: int
    expert_tensor: int
    expert_tensors: int
    first_layers: tuple[int, ...]  # of each part of the pipeline stage

    @classmethod
    def here(cls, model: Architecture, layout: MegatronSettings) -> Place:
        """That of this process, which has joined the groups."""
        return cls(
            tensor=parallel_state.get_tensor_model_parallel_rank(),
            tensors=layout.tensor,
            expert=parallel_state.get_expert_model_parallel_rank(),
            experts=layout.expert,
            expert_tensor=parallel_state.get_expert_tensor_parallel_rank(),
            expert_tensors=layout.expert_tensor,
            first_layers=first_layers(model, layout),
        )


def pieces(name: str, model: Architecture, place: Place) -> list[Piece]:
    """The pieces of a parameter, which is named as in `PackedChunks.named_parameters`."""
    part, _, name = name.partition(".")
    if name in ("embedding.word_embeddings.weight", "output_layer.weight"):
        height = padded_vocabulary(model.vocabulary, place.tensors) // place.tensors
        first = min(place.tensor * height, model.vocabulary)
        stored = EMBEDDING if model.tied or name.startswith("embedding.") else HEAD
        return [Piece(stored, first, min(first + height, model.vocabulary))]
    if name == "decoder.final_layernorm.weight":
        return [Piece(NORM, 0, model.hidden)]
    if name.startswith("value_head."):
        return [Piece(name, 0, 1)]
    _, _, number, rest = name.split(".", 3)
    path = f"model.layers.{place.first_layers[int(part)] + int(number)}."
    if rest.startswith("mlp.experts.local_experts."):
        return _of_expert(rest.removeprefix("mlp.experts.local_experts."), path, model, place)
    return _of_layer(rest, path, model, place)


def _of_layer(name: str, path: str, model: Architecture, place: Place) -> list[Piece]:
    attention, mlp = f"{path}self_attn.", f"{path}mlp."
    width = model.attended // place.tensors
    inner = model.inner // place.tensors
    if model.latent is not None and (found := _of_latent(name, attention, model.latent, model, place)) is not None:
        return found
    match name.split("."):
        case ["self_attention", "linear_qkv", kind]:
            return _query_key_value(attention, kind, model, place)
        case ["self_attention", "linear_proj", "weight"]:
            return [Piece(f"{attention}o_proj.weight", 0, model.hidden, _part(place.tensor, width))]
        case ["self_attention", "q_layernorm" | "k_layernorm" as norm, "weight"]:
            return [Piece(f"{attention}{norm[0]}_norm.weight", 0, model.head)]
        case ["input_layernorm", "weight"]:
            return [Piece(f"{path}input_layernorm.weight", 0, model.hidden)]
        case ["pre_mlp_layernorm", "weight"]:
            return [Piece(f"{path}post_attention_layernorm.weight", 0, model.hidden)]
        case ["mlp", "linear_fc1", "weight"]:
            return [Piece(f"{mlp}{one}_proj.weight", *_part(place.tensor, inner)) for one in ("gate", "up")]
        case ["mlp", "linear_fc2", "weight"]:
            return [Piece(f"{mlp}down_proj.weight", 0, model.hidden, _part(place.tensor, inner))]
        case ["mlp", "router", "weight"]:
            assert model.experts is not None
            return [Piece(f"{mlp}gate.weight", 0, model.experts.count)]
        case ["mlp", "router", "expert_bias"]:
            assert model.experts is not None
            return [Piece(f"{mlp}{EXPERT_BIAS}", 0, model.experts.count)]
        case ["mlp", "shared_experts", "linear_fc1" | "linear_fc2" as which, "weight"]:
            assert model.experts is not None
            rows, stem = _part(place.tensor, model.experts.shared // place.tensors), f"{mlp}shared_experts."
            if which == "linear_fc1":
                return [Piece(f"{stem}{one}_proj.weight", *rows) for one in ("gate", "up")]
            return [Piece(f"{stem}down_proj.weight", 0, model.hidden, rows)]
    raise AssertionError(f"no stored tensor is known for {name}")


def _of_latent(name: str, path: str, latent: Latent, model: Architecture, place: Place) -> list[Piece] | None:
    """Those of latent attention; None for parameters that all layers have."""
    heads = model.heads // place.tensors
    wide = "q_proj" if latent.query_rank is None else "q_b_proj"
    known = {
        "q_down": ("q_a_proj", (0, latent.query_rank or 0)),
        "q_norm": ("q_a_layernorm", (0, latent.query_rank or 0)),
        "linear_q": (wide, _part(place.tensor, heads * model.head)),
        "kv_down": ("kv_a_proj_with_mqa", (0, latent.key_rank + latent.rotary)),
        "kv_norm": ("kv_a_layernorm", (0, latent.key_rank)),
        "linear_kv": ("kv_b_proj", _part(place.tensor, heads * (latent.plain + latent.value))),
    }
    stored = known.get(name.removeprefix("self_attention.").removesuffix(".weight"))
    return None if stored is None else [Piece(f"{path}{stored[0]}.weight", *stored[1])]


def _of_expert(name: str, path: str, model: Architecture, place: Place) -> list[Piece]:
    assert model.experts is not None
    number, kind, _ = name.split(".")
    expert = place.expert * (model.experts.count // place.experts) + int(number)
    part = _part(place.expert_tensor, model.experts.inner // place.expert_tensors)
    stem = f"{path}mlp.experts.{expert}."
    if kind == "linear_fc1":
        return [Piece(f"{stem}{one}_proj.weight", *part) for one in ("gate", "up")]
    return [Piece(f"{stem}down_proj.weight", 0, model.hidden, part)]


def _query_key_value(path: str, kind: str, model: Architecture, place: Place) -> list[Piece]:
    """Megatron keeps the queries of a key head, the key and the value together."""
    groups = model.key_heads // place.tensors
    queries = model.heads // model.key_heads * model.head
    found = []
    for group in range(place.tensor * groups, (place.tensor + 1) * groups):
        for one, height in (("q", queries), ("k", model.head), ("v", model.head)):
            found.append(Piece(f"{path}{one}_proj.{kind}", *_part(group, height)))
    return found


def _part(at: int, width: int) -> tuple[int, int]:
    return at * width, (at + 1) * width


def stored_shapes(model: Architecture) -> Iterator[tuple[str, Shape]]:
    """The tensors of a folder and their shapes."""
    hidden = model.hidden
    yield EMBEDDING, (model.vocabulary, hidden)
    if not model.tied:
        yield HEAD, (model.vocabulary, hidden)
    yield NORM, (hidden,)
    for layer in range(model.layers):
        path = f"model.layers.{layer}."
        yield f"{path}input_layernorm.weight", (hidden,)
        yield f"{path}post_attention_layernorm.weight", (hidden,)
        yield from _attention_shapes(f"{path}self_attn.", model)
        experts = model.experts if model.has_experts(layer) else None
        if experts is not None:
            yield f"{path}mlp.gate.weight", (experts.count, hidden)
            if experts.biased:
                yield f"{path}mlp.{EXPERT_BIAS}", (experts.count,)
        for stem, inner in _feed_forward(f"{path}mlp.", model, experts):
            yield f"{stem}gate_proj.weight", (inner, hidden)
            yield f"{stem}up_proj.weight", (inner, hidden)
            yield f"{stem}down_proj.weight", (hidden, inner)


def _attention_shapes(path: str, model: Architecture) -> Iterator[tuple[str, Shape]]:
    hidden, latent = model.hidden, model.latent
    yield f"{path}o_proj.weight", (hidden, model.attended)
    if latent is not None:
        if latent.query_rank is not None:
            yield f"{path}q_a_proj.weight", (latent.query_rank, hidden)
            yield f"{path}q_a_layernorm.weight", (latent.query_rank,)
        wide = "q_proj" if latent.query_rank is None else "q_b_proj"
        yield f"{path}{wide}.weight", (model.heads * model.head, latent.query_rank or hidden)
        yield f"{path}kv_a_proj_with_mqa.weight", (latent.key_rank + latent.rotary, hidden)
        yield f"{path}kv_a_layernorm.weight", (latent.key_rank,)
        yield f"{path}kv_b_proj.weight", (model.heads * (latent.plain + latent.value), latent.key_rank)
        return
    for one, heads in (("q", model.heads), ("k", model.key_heads), ("v", model.key_heads)):
        yield f"{path}{one}_proj.weight", (heads * model.head, hidden)
        if model.qkv_bias:
            yield f"{path}{one}_proj.bias", (heads * model.head,)
    if model.qk_norm:
        yield f"{path}q_norm.weight", (model.head,)
        yield f"{path}k_norm.weight", (model.head,)


def _feed_forward(path: str, model: Architecture, experts: Experts | None) -> list[tuple[str, int]]:
    if experts is None:
        return [(path, model.inner)]
    found = [(f"{path}experts.{expert}.", experts.inner) for expert in range(experts.count)]
    return found + [(f"{path}shared_experts.", experts.shared)] * bool(experts.shared)
