"""How much memory a model takes: when engines serve it, and when the torch backend trains it.

Weights, gradients and the optimiser's state are exact; activations are those of a Llama-like layer, and of every other
family an estimate. Bytes are those of one process ("rank"), which has a GPU of its own. What CUDA, NCCL and the
allocator take themselves is not counted: `RESERVED_SHARE` keeps space for it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from weir.trainer.model.division import Division, held_numbers, row_tokens, stage_layers
from weir.trainer.model.ops.eight_bit import moment_bytes
from weir.trainer.model.ops.token_logprobs import FUSED_ROWS, KEPT_BYTES, ROWS
from weir.trainer.model.shape import ModelShape

FLOAT32 = 4
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MOMENTS = 2  # AdamW keeps two numbers for each weight, in float32
RESERVED_SHARE = 0.08  # of a device


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMemory:
    """Bytes that serving takes, over all GPUs of one engine."""

    weights: int
    kv_per_token: int
    tokens: int  # in the KV cache at once

    @property
    def total(self) -> int:
        """Weights and the cache of all tokens."""
        return self.weights + self.kv_per_token * self.tokens


def serving_memory(shape: ModelShape, *, dtype: str, tokens: int) -> ServingMemory:
    """What an engine needs that holds `tokens` tokens of all its requests together."""
    size = DTYPE_BYTES[dtype]
    return ServingMemory(weights=shape.num_parameters * size, kv_per_token=shape.cached * size, tokens=tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The settings that training memory depends on."""

    precision: Literal["float32", "bfloat16"] = "float32"
    processes: int = 1
    replicas: int = 1  # copies of the model that the processes make up (HSDP)
    sharers: int = 1  # processes that share the tokens of a micro-batch (context parallelism of the torch backend)
    tokens: int  # of the largest micro-batch
    checkpointing: bool = False
    offload_activations: bool = False  # what is left with checkpointing, in CPU memory
    offload_optimizer: bool = False
    eight_bit: bool = False  # moments of one byte a number
    offload_weights: bool = False  # with gradients and moments, in CPU memory (CPU Adam)
    stepped_on_host: float = 0.0  # share of a rank's weights that AdamW steps in CPU memory (Megatron-core's)
    average: bool = False  # a moving average of the weights (ema)
    critic: bool = False  # GAE's value model
    gathers_half: bool = False  # ranks gather weights in bfloat16
    reference: bool = False  # a second model for the KL divergence, while samples are scored
    division: Division | None = None  # Megatron-core's; None: FSDP2 over the processes


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """Bytes of one rank while it trains, by what they hold."""

    weights: int  # float32, this rank's share
    gradients: int
    moments: int  # AdamW's, this rank's share, in float32 or with 8 bits
    average: int
    critic: int  # weights, gradients and moments of the critic
    rounded: int  # bfloat16 copies that the forward pass computes with, of the whole model
    gathered: int  # the layers that FSDP has put together from all ranks at one moment
    activations: int
    logits: int
    loading: int  # while weights are loaded: all of them in one process, else this rank's rows
    reference: int  # a reference model while it is loaded
    offloaded: bool  # whether the moments are in CPU memory except during the step
    waiting: int = 0  # activations in CPU memory
    stepped: int = 0  # in CPU memory: float32 weights, gradients and moments that are stepped there, with their average
    on_host: bool = False  # whether weights, gradients, moments, average and critic are in CPU memory, always

    @property
    def resident(self) -> int:
        """What stays between steps on the device."""
        if self.on_host:
            return 0
        return self.weights + self.average + self.critic + (0 if self.offloaded else self.moments)

    @property
    def phases(self) -> dict[str, int]:
        """The device memory that each phase needs at its peak."""
        passes = self.rounded + self.gathered + self.activations + self.logits
        if self.on_host:  # the reference's weights are there, too
            return {"load": 0, "forward and backward": passes, "step": 0}
        step = self._state + self.gradients
        passes += self.resident + self.gradients
        of_critic = self.critic * self.weights // (self.weights + self.gradients + self.moments)
        found = {"load": self.loading + of_critic, "forward and backward": passes, "step": step}
        if self.reference:
            found["score by the reference"] = self.resident + self.reference
        return found

    @property
    def _state(self) -> int:
        """What is the same after a step, but for its numbers."""
        return self.weights + self.average + self.critic + self.moments

    @property
    def certain(self) -> int:
        """What no micro-batch can avoid: the phases without activations and logits."""
        phases = self.phases
        phases["forward and backward"] -= self.activations + self.logits
        return max(phases.values())

    @property
    def peak(self) -> int:
        """The largest of the phases."""
        return max(self.phases.values())

    @property
    def host(self) -> int:
        """CPU memory of one rank: the model while it is loaded, and offloaded moments, or all that a step takes."""
        if self.on_host:
            return self._state + max(self.gradients, self.reference) + self.waiting
        return self.loading + (self.moments if self.offloaded else 0) + self.waiting + self.stepped

    def as_json(self) -> dict[str, object]:
        """Every part, the phases and the peak."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return parts | {"phases": self.phases, "peak": self.peak, "host": self.host}


def training_memory(shape: ModelShape, plan: TrainingPlan) -> TrainingMemory:
    """What one rank needs to train a model with AdamW."""
    if plan.division is not None:
        return _divided_memory(shape, plan, plan.division)
    owners = plan.processes // plan.replicas
    share = -(-shape.num_parameters // owners) * FLOAT32
    in_half = plan.precision == "bfloat16"
    sharded = plan.processes > 1 or plan.offload_weights
    moments = (
        -(-moment_bytes(shape.num_parameters, shape.num_unblocked) // owners) if plan.eight_bit else MOMENTS * share
    )
    return TrainingMemory(
        weights=share,
        gradients=share,
        moments=moments,
        average=share if plan.average else 0,
        critic=2 * share + moments if plan.critic else 0,
        # torch.autocast rounds each weight once in a pass and keeps it; FSDP's gathered weights are rounded whole
        rounded=2 * shape.num_parameters if in_half and not plan.gathers_half else 0,
        gathered=_gathered(shape, plan) if sharded else 0,
        activations=activation_bytes(shape, plan),
        logits=logit_bytes(shape, _own_tokens(plan), in_half=in_half),
        loading=share,
        reference=share + (_gathered(shape, plan) if sharded else 0) if plan.reference else 0,
        offloaded=plan.offload_optimizer,
        waiting=_inputs(shape, plan) if plan.offload_activations else 0,
        on_host=plan.offload_weights,
    )


def _divided_memory(shape: ModelShape, plan: TrainingPlan, division: Division) -> TrainingMemory:
    """As `training_memory`, of the process with the most weights: it computes with all of its part of the model, sums
    gradients in float32, and keeps float32 weights and moments of what it owns."""
    in_half = plan.precision == "bfloat16"
    held = held_numbers(shape, division)
    numbers = held.dense + held.experts
    weights = numbers * DTYPE_BYTES[plan.precision]
    of_host = round(held.owned * plan.stepped_on_host)
    owned = held.owned - of_host
    own_copies = owned * FLOAT32 if in_half else 0  # float32 weights are the parameters themselves
    tokens = row_tokens(division, plan.tokens)
    return TrainingMemory(
        weights=weights + own_copies,
        gradients=numbers * FLOAT32,
        moments=MOMENTS * owned * FLOAT32,
        average=owned * FLOAT32 if plan.average else 0,
        critic=0,
        rounded=0,
        gathered=2 * tokens * division.context * shape.key // division.tensor * FLOAT32 if division.context > 1 else 0,
        activations=_divided_activations(shape, plan, division),
        logits=logit_bytes(shape, tokens, in_half=in_half, parts=division.tensor),
        loading=weights,
        reference=0,  # its weights take the place of the model's, which wait in CPU memory
        offloaded=plan.offload_optimizer,
        stepped=of_host * FLOAT32 * (2 + MOMENTS + plan.average),
    )


def _divided_activations(shape: ModelShape, plan: TrainingPlan, division: Division) -> int:
    """What a process of the first stage keeps of the micro-batches in flight."""
    tokens, kept = row_tokens(division, plan.tokens), stage_layers(shape, division)
    of_layer = layer_bytes(shape, in_half=plan.precision == "bfloat16")
    # norms and shares of experts, which are divided by tokens or not at all
    whole = 0 if division.sequence else FLOAT32 * (4 * shape.hidden + shape.num_balanced)
    divided = -(-tokens * (of_layer - whole) // division.tensor) + tokens * whole
    if not plan.checkpointing:
        return kept * divided
    inputs = tokens * shape.hidden * FLOAT32 // (division.tensor if division.sequence else 1)
    return kept * inputs + divided


def _gathered(shape: ModelShape, plan: TrainingPlan) -> int:
    """Weights and gradients of the parts outside the layers, and of two layers: one computes, the next arrives.

    Of gradients in bfloat16 there is a copy in float32, in which they are summed over ranks.
    """
    numbers = 2 * shape.num_root_parameters + 3 * shape.num_layer_parameters
    if not plan.gathers_half:
        return FLOAT32 * numbers
    return FLOAT32 // 2 * numbers + FLOAT32 * max(shape.num_root_parameters, shape.num_layer_parameters)


def activation_bytes(shape: ModelShape, plan: TrainingPlan) -> int:
    """What the backward pass needs of the forward pass, for a micro-batch of `plan.tokens` tokens.

    With checkpointing, the input of each layer, of two where they wait in CPU memory, and the activations of one layer.
    """
    in_half, tokens = plan.precision == "bfloat16", _own_tokens(plan)
    of_layer = tokens * layer_bytes(shape, in_half=in_half)
    if plan.sharers > 1:  # keys and values of the whole row in place of its own; masks, as queries begin within a row
        size = 2 if in_half else FLOAT32
        of_layer += size * (2 * (plan.tokens - tokens) * shape.key + tokens * plan.tokens // 2)
    if not plan.checkpointing:
        return shape.num_layers * of_layer
    inputs = _inputs(shape, plan)
    return of_layer + (2 * inputs // shape.num_layers if plan.offload_activations else inputs)


def _own_tokens(plan: TrainingPlan) -> int:
    """The tokens of a micro-batch that one rank computes."""
    return -(-plan.tokens // plan.sharers)


def _inputs(shape: ModelShape, plan: TrainingPlan) -> int:
    """The inputs of all layers, in float32."""
    return _own_tokens(plan) * shape.num_layers * FLOAT32 * shape.hidden


def layer_bytes(shape: ModelShape, *, in_half: bool) -> int:
    """Bytes that one layer of a Llama-like model saves for one token: attention, feed-forward block, two norms, and the
    router's shares of all experts where they have a loss.

    Counted tensor by tensor: the residual stream and the norms are float32, what linear layers take and give is in the
    precision of the computation. Attention keeps no scores (flash and memory-efficient kernels).
    """
    size = 2 if in_half else FLOAT32
    norms = 2 * 2 * shape.hidden * FLOAT32  # each: its input and the normalised input
    # of query, key, value, gate and up: torch.autocast rounds an input for each of them
    inputs = shape.hidden * (5 * size if in_half else 2 * size)
    routed = 2 * shape.num_routed * shape.hidden * size  # what goes to the chosen experts, and what they give
    query_norms = 2 * (shape.query + shape.key) * FLOAT32 if shape.has_query_norm else 0
    attention = (3 * shape.query + 2 * shape.key) * size  # queries, keys, values, the output, and its rows in order
    feed_forward = 4 * shape.inner * size  # gate, its activation, up, and their product
    shares = shape.num_balanced * FLOAT32
    return norms + inputs + routed + shares + query_norms + attention + feed_forward


def logit_bytes(shape: ModelShape, tokens: int, *, in_half: bool, parts: int = 1) -> int:
    """Logprobs of all tokens as targets: one block of logits and its softmax, kept softmaxes, the head's gradient.

    `parts` processes divide the vocabulary.
    """
    vocabulary = -(-shape.vocabulary // parts)
    # a block's logits and their gradient; on GPUs larger blocks, in half precision
    block = max(2 * ROWS * FLOAT32, 2 * FUSED_ROWS * FLOAT32 // 2 if in_half else 0) * vocabulary
    kept = min(KEPT_BYTES, tokens * vocabulary * FLOAT32)
    states = tokens * shape.hidden * (2 * FLOAT32 + (2 if in_half else FLOAT32))  # with those of the last norm
    return block + kept + states + vocabulary * shape.hidden * FLOAT32


def usable(device_bytes: int) -> int:
    """The part of a device's memory that a plan may fill."""
    return int(device_bytes * (1 - RESERVED_SHARE))
