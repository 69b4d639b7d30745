"""Whether a round fits its devices: the memory of each rank by the settings, and what to change where it does not.

`weir round --plan` compares the largest micro-batch that the settings allow. A round is refused only for what no
micro-batch can avoid: weights, gradients, moments, and what ranks gather.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.division import Division
from weir.trainer.model.memory import TrainingMemory, TrainingPlan, training_memory, usable
from weir.trainer.model.shape import ModelShape, read_shape
from weir.trainer.settings.combinations import BUILT_IN
from weir.trainer.settings.config import TrainerConfig

GIB = 2**30
Remedy = tuple[str, dict[str, object]]  # in words, and what it changes of a plan


def training_plan(config: TrainerConfig, *, sample_tokens: int | None = None) -> TrainingPlan:
    """The settings that memory depends on.

    `sample_tokens` is the longest sample, prompt and output; unset: trainer.max_sample_tokens, else the token budget.
    """
    longest = sample_tokens or config.max_sample_tokens or config.token_budget
    return TrainingPlan(
        precision=config.precision,
        processes=config.processes,
        tokens=max(config.token_budget, longest),
        checkpointing=config.gradient_checkpointing,
        offload_activations=config.offload_activations,
        replicas=config.replicas,
        sharers=config.context_parallel,
        offload_optimizer=config.offload_optimizer,
        eight_bit=config.optimizer == "adamw_8bit",
        offload_weights=config.offload_weights,
        stepped_on_host=config.megatron.optimizer_offload_fraction,
        average=config.ema is not None,
        critic=config.advantage == "gae",
        reference=config.kl != "none" and config.lora_rank is None,
        gathers_half=config.gather_precision == "bfloat16",
        division=division_of(config),
    )


def division_of(config: TrainerConfig) -> Division | None:
    """How the ranks divide the model; None where each gathers its layers."""
    if config.backend != "megatron":
        return None
    return Division(processes=config.processes, **config.megatron.sizes)


def device_bytes(device: str) -> int | None:
    """The memory of this machine's first GPU, or of the machine for device = cpu; None where there is no such GPU."""
    import psutil
    import torch

    if torch.cuda.is_available() and device != "cpu":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return None if device == "cuda" else int(psutil.virtual_memory().total)


def require_room(config: TrainerConfig, folder: Path) -> None:
    """Raise `TrainerUsageError` where even the smallest micro-batch does not fit; the message names what would.

    Backends by import path, and LoRA, whose frozen weights need less, are not judged.
    """
    if config.backend not in BUILT_IN or config.lora_rank is not None:
        return
    capacity = device_bytes(config.device)
    shape, plan = read_shape(folder), training_plan(config)
    memory = training_memory(shape, plan)
    if capacity is None or memory.certain <= usable(capacity):
        return
    found = remedies(shape, plan, capacity, shortest=config.max_sample_tokens, measure=lambda memory: memory.certain)
    raise TrainerUsageError(
        f"the round does not fit: weights, gradients and moments need {_gib(memory.certain)} on each device, before "
        f"any activations, and {_gib(usable(capacity))} of {_gib(capacity)} can be used; nothing was claimed. What "
        f"would fit: {'; '.join(found) or 'no setting of [trainer], take larger or more GPUs'} (`weir round --plan`)"
    )


def remedies(
    shape: ModelShape,
    plan: TrainingPlan,
    capacity: int,
    *,
    shortest: int | None = None,
    measure: Callable[[TrainingMemory], int] = lambda memory: memory.peak,
) -> Iterator[str]:
    """Changes of settings that make the round fit, the cheapest first; several together where one is not enough.

    `shortest` is the longest sample, below which no token budget helps; `measure` says what has to fit.
    """

    def fits(change: dict[str, object]) -> bool:
        changed = replace(plan, **change)  # type: ignore[arg-type]
        if changed.division is not None:
            changed = replace(changed, division=replace(changed.division, processes=changed.processes))
        return measure(training_memory(shape, changed)) <= usable(capacity)

    half = max(shortest or 1, plan.tokens // 2)
    ranks: dict[str, object] = {"processes": _more_processes(plan)}
    fewer: Remedy = (f"trainer.token_budget = {half}", {"tokens": half})
    recomputed: Remedy = ("trainer.gradient_checkpointing = true", {"checkpointing": True})
    steps: list[Remedy] = [fewer, recomputed]
    if not plan.offload_weights:
        steps.append(("trainer.offload_optimizer = true", {"offload_optimizer": True}))
        if plan.division is None:
            steps.append(('trainer.optimizer = "adamw_8bit"', {"eight_bit": True}))
    waiting: Remedy = ("trainer.offload_activations = true", {"offload_activations": True})
    if plan.division is None:
        steps.append(waiting)
    steps.append((f"trainer.processes = {ranks['processes']} (a GPU for each)", ranks))
    if plan.precision == "bfloat16" and plan.division is None:
        steps.append(('trainer.gather_precision = "bfloat16"', ranks | {"gathers_half": True}))
    yield from (text for text, change in steps if fits(change) and not _holds(plan, change))
    yield from _together(steps, plan, fits, at_least=2)
    if plan.division is None:  # the slowest: every pass copies all weights to the device
        on_host: Remedy = (
            "trainer.offload_weights = true",
            {"offload_weights": True, "offload_optimizer": False, "eight_bit": False},
        )
        yield from _together([on_host, recomputed, waiting, fewer], plan, fits, at_least=1)
    else:  # the processors of a machine step more slowly than its GPUs
        stepped: Remedy = (
            "trainer.megatron.optimizer_offload_fraction = 1.0",
            {"stepped_on_host": 1.0, "offload_optimizer": False},
        )
        yield from _together([stepped, recomputed, fewer], plan, fits, at_least=1)


def _together(
    steps: Sequence[Remedy], plan: TrainingPlan, fits: Callable[[dict[str, object]], bool], *, at_least: int
) -> Iterator[str]:
    """The fewest of the steps, from the first one on, that are enough together; nothing where all are not."""
    words, changes = list[str](), dict[str, object]()
    for text, change in steps:
        if _holds(plan, change):
            continue
        words.append(text)
        changes |= change
        if len(words) >= at_least and fits(changes):
            yield " with ".join(words)
            return


def _holds(plan: TrainingPlan, change: dict[str, object]) -> bool:
    return all(getattr(plan, name) == value for name, value in change.items())


def _more_processes(plan: TrainingPlan) -> int:
    """8, or, where a model is divided already, twice the processes, which share gradients' and moments' owners."""
    if plan.division is not None:
        return 2 * plan.processes
    together = math.lcm(plan.replicas, plan.sharers)
    return -(-max(8, plan.processes) // together) * together


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"
