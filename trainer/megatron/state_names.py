"""The names and places of stored tensors in the training state, which are those of the torch backend's parameters.

Invariant: a state that either backend wrote is read by both, so the experts of a layer lie in one tensor, as
transformers holds them, taken as a matrix: one expert below the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from weir.trainer.learner.saved_state import CRITIC, POLICY
from weir.trainer.megatron.architecture import Architecture
from weir.trainer.megatron.weight_map import EXPERT_BIAS, HEAD, stored_shapes

EXPERTS = ".mlp.experts."
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatePlace:
    """A stored tensor is rows `first` and following of a tensor of the state."""

    name: str
    shape: Shape
    first: int = 0


def state_places(model: Architecture, part: str = POLICY) -> dict[str, StatePlace]:
    """The place of every trained tensor; the critic has a head of its own in place of the vocabulary's."""
    found = {name: _place(name, shape, model) for name, shape in stored_shapes(model) if not name.endswith(EXPERT_BIAS)}
    if part != CRITIC:
        return found
    of_base = {
        name: StatePlace(place.name.replace("network.model.", "base.", 1), place.shape, place.first)
        for name, place in found.items()
        if name != HEAD
    }
    head = {"value_head.weight": StatePlace("head.weight", (1, model.hidden))}
    return of_base | head | {"value_head.bias": StatePlace("head.bias", (1,))}


def _place(name: str, shape: Shape, model: Architecture) -> StatePlace:
    if EXPERTS not in name:
        return StatePlace(f"network.{name}", shape)
    assert model.experts is not None
    layer, _, rest = name.partition(EXPERTS)
    number, projection, _ = rest.split(".")
    height, width = shape
    stem, experts, at = f"network.{layer}{EXPERTS}", model.experts.count, int(number)
    if projection == "down_proj":
        return StatePlace(f"{stem}down_proj", (experts, height, width), at * height)
    half = height if projection == "up_proj" else 0
    return StatePlace(f"{stem}gate_up_proj", (experts, 2 * height, width), 2 * at * height + half)
