"""`weir round --plan`: the memory of each rank, the work of a round, and whether it fits. Nothing is claimed or loaded.

Only the model's config.json is read, so a round can be planned before the weights are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weir.agents.config import AgentsConfig
from weir.scripts.launch.errors import UsageError
from weir.trainer.model.memory import TrainingMemory, TrainingPlan, training_memory, usable
from weir.trainer.model.shape import ModelShape, read_shape
from weir.trainer.rounds.fit import remedies, training_plan
from weir.trainer.settings.config import TrainerConfig

GIB = 2**30
ASSUMED_MFU = 0.3  # share of the peak that training reaches, where no round has measured it


class DoesNotFit(UsageError):
    """The round needs more memory than there is; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """What one round needs, by the settings."""

    shape: ModelShape
    config: TrainerConfig  # with the learning rate for the model's size
    plan: TrainingPlan
    memory: TrainingMemory
    num_sessions: int
    output_tokens: int  # sampled tokens of a round, at most
    passes: int  # forward and backward passes over them
    capacity: int | None  # bytes of a device; None where it is not known

    @property
    def flops(self) -> float:
        """6 operations for each active parameter and token, 8 where activations are recomputed (arXiv 2001.08361)."""
        each = 8 if self.plan.checkpointing else 6
        return float(each * self.shape.num_active * self.output_tokens * self.passes)


def plan_memory(
    config: TrainerConfig, agents: AgentsConfig, model: Path, *, capacity: int | None, sample_tokens: int | None = None
) -> RoundPlan:
    """The plan of the settings over a model folder. Raises `TrainerUsageError` for a folder without a model.

    `sample_tokens` is the longest sample, prompt and output; unset: trainer.max_sample_tokens, else the token budget.
    """
    shape = read_shape(model)
    config = config.with_defaults(lambda: shape.num_parameters)
    plan = training_plan(config, sample_tokens=sample_tokens)
    num_sessions = config.groups_per_round * agents.samples
    return RoundPlan(
        shape=shape,
        config=config,
        plan=plan,
        memory=training_memory(shape, plan),
        num_sessions=num_sessions,
        output_tokens=num_sessions * agents.turns * agents.max_tokens,
        passes=int(getattr(config, "epochs", 1)),
        capacity=capacity,
    )


def require_fit(planned: RoundPlan) -> None:
    """Raise DoesNotFit where a rank needs more than its device may hold; the message names what would fit."""
    if planned.capacity is None or planned.memory.peak <= usable(planned.capacity):
        return
    phase = max(planned.memory.phases, key=lambda name: planned.memory.phases[name])
    ways = remedies(planned.shape, planned.plan, planned.capacity, shortest=planned.config.max_sample_tokens)
    words = "; ".join(ways) or "no setting of [trainer] makes it fit: take larger or more GPUs"
    raise DoesNotFit(
        f"the round does not fit: {phase} needs {_gib(planned.memory.peak)} on each device, and "
        f"{_gib(usable(planned.capacity))} of {_gib(planned.capacity)} can be used. What would fit: {words}"
    )


def plan_lines(planned: RoundPlan) -> Iterator[str]:
    """The plan for people."""
    shape, memory, config, plan = planned.shape, planned.memory, planned.config, planned.plan
    sizes = f"{shape.num_parameters / 1e9:.3f} B parameters, {shape.num_active / 1e9:.3f} B active"
    yield f"model      {shape.model_type}, {sizes}"
    yield (
        f"settings   {config.algorithm}, lr {config.peak_lr:g}, {plan.precision}, {plan.processes} processes, "
        f"micro-batches of {plan.tokens} tokens"
    )
    parts = ("weights", "gradients", "moments", "average", "critic", "rounded", "gathered", "activations", "logits")
    held = ", ".join(f"{name} {_gib(value)}" for name in parts if (value := getattr(memory, name)))
    yield f"each rank  {held}"
    for name, value in memory.phases.items():
        yield f"           {name}: {_gib(value)}"
    room = "" if planned.capacity is None else f" of {_gib(usable(planned.capacity))} that a device can give"
    yield f"peak       {_gib(memory.peak)} on each device{room}; {_gib(memory.host * plan.processes)} of CPU memory"
    if planned.capacity is None:
        yield "           not compared with a device: name its memory with --device-gib"
    yield (
        f"a round    {planned.num_sessions} sessions, at most {planned.output_tokens} sampled tokens, "
        f"{planned.flops:.3g} operations"
    )
    if config.peak_tflops is not None:
        seconds = planned.flops / (config.peak_tflops * 1e12 * ASSUMED_MFU * plan.processes)
        rate = f"{ASSUMED_MFU:.0%} of {config.peak_tflops:g} TFLOPS a device"
        yield f"time       at most {seconds:.0f} s of training, at {rate}"
    else:
        yield "time       not estimated: set trainer.peak_tflops to the peak of a device"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"
