"""What a layout costs each rank: memory while a step is computed, and bytes that it sends in a step. Pure arithmetic.

A layout divides a model among ranks by tensors (with SP), layers (PP), tokens (CP) and experts (EP, ETP); the rest of
the ranks are data parallel and share the optimiser's state. Training is bfloat16 with gradients in float32, as
Megatron-core's distributed optimiser holds them: 2 + 4 bytes a weight, and 12 of master copy and moments, divided by
the data parallel ranks. Activations are those of `memory.layer_bytes`. What libraries take themselves is not counted
(`memory.RESERVED_SHARE`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from weir.trainer.model.memory import FLOAT32, layer_bytes
from weir.trainer.model.ops.token_logprobs import ROWS
from weir.trainer.model.parts import LayerParts, ModelParts
from weir.trainer.model.shape import ModelShape
from weir.trainer.settings.megatron import MegatronSettings

HALF = 2
GRADIENT = FLOAT32
STATE = 3 * FLOAT32  # master copy and two moments


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutWork:
    """What ranks compute at a time: `tokens` of a micro-batch over its context ranks, so many in a step."""

    tokens: int
    step_tokens: int
    recompute: bool = True  # activations, layer by layer
    state_on_host: bool = False  # CPU Adam


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Bytes of the fullest rank."""

    weights: int
    gradients: int
    state: int  # master copies and moments
    activations: int
    logits: int
    host: int  # CPU memory of one rank

    @property
    def peak(self) -> int:
        """What the device holds at once."""
        return self.weights + self.gradients + self.state + self.activations + self.logits


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTraffic:
    """Bytes that one rank sends in an optimiser step, by what for."""

    tensor: int = 0
    context: int = 0
    pipeline: int = 0
    expert: int = 0
    data: int = 0

    @property
    def total(self) -> int:
        """Of all kinds."""
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPlan:
    """A model, divided. Copies of it are `data`; copies of its experts are `expert_data`."""

    shape: ModelShape
    parts: ModelParts
    layout: MegatronSettings
    processes: int
    work: LayoutWork

    def problems(self) -> Iterator[str]:
        """Why the layout cannot divide the model, in words."""
        layout = self.layout
        ranks = layout.tensor * layout.pipeline * layout.context
        if self.processes % ranks:
            yield f"tensor × pipeline × context = {ranks} does not divide {self.processes} processes"
        of_experts = layout.expert * layout.expert_tensor * layout.pipeline
        if self.processes % of_experts:
            yield f"expert × expert_tensor × pipeline = {of_experts} does not divide {self.processes} processes"
        if self.parts.key_heads % layout.tensor:
            yield f"tensor = {layout.tensor} does not divide {self.parts.key_heads} key and value heads"
        if layout.expert > 1 and (not self.parts.num_experts or self.parts.num_experts % layout.expert):
            yield f"expert = {layout.expert} does not divide {self.parts.num_experts} experts"
        if layout.pipeline > len(self.parts.layers):
            yield f"pipeline = {layout.pipeline} is more than {len(self.parts.layers)} layers"

    @property
    def data(self) -> int:
        """Copies of what is not an expert."""
        return max(1, self.processes // (self.layout.tensor * self.layout.pipeline * self.layout.context))

    @property
    def expert_data(self) -> int:
        """Copies of an expert."""
        return max(1, self.processes // (self.layout.expert * self.layout.expert_tensor * self.layout.pipeline))

    @property
    def micro_batches(self) -> int:
        """Micro-batches of each copy in a step."""
        return -(-self.work.step_tokens // (self.work.tokens * self.data))

    @property
    def own_tokens(self) -> int:
        """Tokens of a micro-batch that one context rank computes."""
        return -(-self.work.tokens // self.layout.context)

    def stage_parameters(self, stage: int) -> tuple[int, int]:
        """Numbers on a rank of a stage: what is not an expert, and of experts."""
        layout, layers = self.layout, self.parts.stages(self.layout.pipeline)[stage]
        plain = sum(-(-layer.divided // layout.tensor) + layer.whole for layer in layers)
        if stage == 0:
            plain += -(-self.parts.embedding // layout.tensor)
        if stage == layout.pipeline - 1:
            tied = self.parts.embedding if layout.pipeline > 1 else 0
            plain += -(-(self.parts.head or tied) // layout.tensor) + self.parts.norm
        experts = sum(layer.experts for layer in layers)
        return plain, -(-experts // (layout.expert * layout.expert_tensor))

    def memory(self) -> RankMemory:
        """Of the stage that needs most."""
        return max(map(self.stage_memory, range(self.layout.pipeline)), key=lambda memory: memory.peak)

    def stage_memory(self, stage: int) -> RankMemory:
        """Of a rank of one stage."""
        plain, experts = self.stage_parameters(stage)
        state = STATE * (-(-plain // (self.data * self.layout.context)) + -(-experts // self.expert_data))
        is_last = stage == self.layout.pipeline - 1
        return RankMemory(
            weights=HALF * (plain + experts),
            gradients=GRADIENT * (plain + experts),
            state=0 if self.work.state_on_host else state,
            activations=self._activations(stage),
            logits=self._logits() if is_last else 0,
            host=state if self.work.state_on_host else 0,
        )

    def _activations(self, stage: int) -> int:
        """Of the micro-batches in flight (1F1B): the first stage has one for each stage behind it."""
        layout, num_layers = self.layout, len(self.parts.stages(self.layout.pipeline)[stage])
        divided = layout.tensor if layout.sequence else 1
        of_layer = layer_bytes(self.shape, in_half=True) / divided
        in_flight = min(layout.pipeline - stage, self.micro_batches)
        if not self.work.recompute:
            return int(self.own_tokens * num_layers * of_layer * in_flight)
        inputs = HALF * self.shape.hidden / divided
        return int(self.own_tokens * (num_layers * inputs * in_flight + of_layer))

    def _logits(self) -> int:
        """A block of rows and its softmax, the last hidden states with their gradient, the gradient of the head."""
        rows = -(-self.shape.vocabulary // self.layout.tensor)
        block = 3 * min(ROWS, self.own_tokens) * rows * FLOAT32
        return block + 2 * HALF * self.own_tokens * self.shape.hidden + FLOAT32 * rows * self.shape.hidden

    def traffic(self) -> RankTraffic:
        """In one step, of a rank on the stage that sends most."""
        return max(map(self._stage_traffic, range(self.layout.pipeline)), key=lambda traffic: traffic.total)

    def _stage_traffic(self, stage: int) -> RankTraffic:
        layers = self.parts.stages(self.layout.pipeline)[stage]
        return RankTraffic(
            tensor=self.micro_batches * sum(map(self._tensor_bytes, layers)),
            context=self.micro_batches * sum(map(self._context_bytes, layers)),
            pipeline=self._pipeline_bytes(stage),
            expert=self.micro_batches * sum(map(self._expert_bytes, layers)),
            data=self._data_bytes(stage),
        )

    def _tensor_bytes(self, layer: LayerParts) -> int:
        """Each block gathers its input and scatters its sums: 2 times forward, 3 backward, 2 to recompute."""
        tensor = self.layout.tensor
        times = layer.collectives * (7 if self.work.recompute else 5)
        return times * HALF * self.own_tokens * self.shape.hidden * (tensor - 1) // tensor

    def _context_bytes(self, layer: LayerParts) -> int:
        """Keys and values go to all context ranks, again to recompute, and their gradients come back."""
        times = 3 if self.work.recompute else 2
        return times * HALF * self.own_tokens * layer.keys // self.layout.tensor * (self.layout.context - 1)

    def _pipeline_bytes(self, stage: int) -> int:
        """States to the next stage, gradients to the one before."""
        layout = self.layout
        borders = (stage < layout.pipeline - 1) + (stage > 0)
        divided = layout.tensor if layout.sequence else 1
        return borders * self.micro_batches * HALF * self.own_tokens * self.shape.hidden // divided

    def _expert_bytes(self, layer: LayerParts) -> int:
        """Each token goes to its experts and back: 2 times forward, 2 backward, 2 to recompute."""
        if not layer.experts:
            return 0
        expert = self.layout.expert * self.layout.expert_tensor
        times = 6 if self.work.recompute else 4
        tokens = self.own_tokens // self.layout.tensor * self.shape.num_routed
        return times * HALF * tokens * self.shape.hidden * (expert - 1) // expert

    def _data_bytes(self, stage: int) -> int:
        """Once a step gradients are summed and scattered, and the stepped weights gathered."""
        plain, experts = self.stage_parameters(stage)
        each = GRADIENT + HALF
        copies = self.data * self.layout.context
        return each * (plain * (copies - 1) // copies + experts * (self.expert_data - 1) // self.expert_data)
