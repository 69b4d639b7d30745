"""Which rows and columns of a Hugging Face folder's tensors make up a rank's part of each Megatron parameter.

Invariant: the parts of all ranks of a copy of the model cover every stored tensor, and the map is used in both
directions, for weights, gradients and moments. A parameter is its pieces one below the other; what remains at its end
is padding of the vocabulary, which is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from megatron.core import parallel_state

from weir.trainer.megatron.architecture import Architecture
from weir.trainer.megatron.packed_model import padded_vocabulary
from weir.trainer.settings.megatron import MegatronSettings

Shape = tuple[int, ...]

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
NORM = "model.norm.weight"


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
            first_layers=_first_layers(model, layout, parallel_state.get_pipeline_model_parallel_rank()),
        )


def _first_layers(model: Architecture, layout: MegatronSettings, stage: int) -> tuple[int, ...]:
    layers = model.layers // (layout.pipeline * layout.chunks)
    return tuple((part * layout.pipeline + stage) * layers for part in range(layout.chunks))


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
    width = model.heads * model.head // place.tensors
    inner = model.inner // place.tensors
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
    raise AssertionError(f"no stored tensor is known for {name}")


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
        for one, heads in (("q", model.heads), ("k", model.key_heads), ("v", model.key_heads)):
            yield f"{path}self_attn.{one}_proj.weight", (heads * model.head, hidden)
            if model.qkv_bias:
                yield f"{path}self_attn.{one}_proj.bias", (heads * model.head,)
        yield f"{path}self_attn.o_proj.weight", (hidden, model.heads * model.head)
        if model.qk_norm:
            yield f"{path}self_attn.q_norm.weight", (model.head,)
            yield f"{path}self_attn.k_norm.weight", (model.head,)
        if model.experts is not None:
            yield f"{path}mlp.gate.weight", (model.experts.count, hidden)
        for stem, inner in _feed_forward(path, model):
            yield f"{stem}gate_proj.weight", (inner, hidden)
            yield f"{stem}up_proj.weight", (inner, hidden)
            yield f"{stem}down_proj.weight", (hidden, inner)


def _feed_forward(path: str, model: Architecture) -> list[tuple[str, int]]:
    if model.experts is None:
        return [(f"{path}mlp.", model.inner)]
    return [(f"{path}mlp.experts.{expert}.", model.experts.inner) for expert in range(model.experts.count)]
