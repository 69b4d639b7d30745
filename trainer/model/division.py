"""How much of a model one process holds where several divide it by tensors, layers, tokens and experts.

It is what `memory.training_memory` needs for a round with Megatron-core, whose stages have equally many layers; tokens
are taken as evenly spread over experts. `layouts.py` compares layouts on paper, with what they send.
"""

from __future__ import annotations

from dataclasses import dataclass

from weir.trainer.model.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How processes divide a model, as [trainer.megatron] says; `processes` are all of them."""

    processes: int
    tensor: int = 1
    sequence: bool = True
    pipeline: int = 1
    chunks: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1

    @property
    def copies(self) -> int:
        """Copies of the model, which share out micro-batches."""
        return self.processes // (self.tensor * self.pipeline * self.context)

    @property
    def owners(self) -> int:
        """Processes that share the optimiser's state of a weight outside the experts."""
        return self.processes // (self.tensor * self.pipeline)

    @property
    def expert_owners(self) -> int:
        """Processes that share the optimiser's state of an expert's weight."""
        return self.processes // (self.expert * self.expert_tensor * self.pipeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldNumbers:
    """How many weights the process with the most of them computes with, and of how many it keeps the state."""

    dense: int
    experts: int
    owned: int


def held_numbers(shape: ModelShape, division: Division) -> HeldNumbers:
    """Weights of the fullest stage's process; the first has the embedding, the last the head."""
    size = -(-shape.num_layers // division.pipeline)
    matrix = shape.vocabulary * shape.hidden
    both = matrix if shape.tied else 2 * matrix
    found = []
    for stage in range(division.pipeline):
        layers = shape.layers[stage * size : (stage + 1) * size]
        ends = both if division.pipeline == 1 else matrix * (stage in (0, division.pipeline - 1))
        dense = sum(layer.whole for layer in layers) + shape.hidden
        dense += -(-(sum(layer.divided for layer in layers) + ends) // division.tensor)
        experts = -(-sum(layer.experts for layer in layers) // (division.expert * division.expert_tensor))
        owned = -(-dense // division.owners) + -(-experts // division.expert_owners)
        found.append(HeldNumbers(dense=dense, experts=experts, owned=owned))
    return max(found, key=lambda held: held.dense + held.experts)


def row_tokens(division: Division, tokens: int) -> int:
    """Tokens of a micro-batch that one process of a context-parallel group computes."""
    return -(-tokens // division.context)


def stage_layers(shape: ModelShape, division: Division) -> int:
    """Layers whose activations a process of the first stage keeps at once: those of every micro-batch in flight."""
    layers = -(-shape.num_layers // division.pipeline)
    kept = layers * division.pipeline
    if division.chunks == 1:
        return kept
    return kept + -(-layers * (division.pipeline - 1) // division.chunks)  # arXiv 2205.05198, section 4
