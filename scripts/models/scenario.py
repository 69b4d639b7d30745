"""`weir init`: the scenarios, and what fits a model on each: devices, savings of memory, lengths of samples.

The arithmetic is that of `weir round --plan`. What is chosen uses the fewest devices for training, then the fewest
savings, then the largest micro-batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from weir.engine.weights import ARCHITECTURES
from weir.scripts.launch.errors import UsageError
from weir.trainer.model.memory import TrainingPlan, serving_memory, training_memory, usable
from weir.trainer.model.shape import ModelShape, read_shape

GIB = 2**30
Scenario = Literal["cpu", "one-gpu", "node", "cluster"]
LONGEST: dict[Scenario, int] = {"cpu": 1024, "one-gpu": 4096, "node": 16384, "cluster": 16384}
SESSIONS: dict[Scenario, int] = {"cpu": 8, "one-gpu": 32, "node": 128, "cluster": 128}  # at the same time
SMALL = 1e9  # parameters up to which the embedded engine serves on a CPU
WEIGHTS_SHARE = 0.6  # of a GPU that serves, at most; the rest is for the KV cache
ENGINE_OVERHEAD = 0.05  # of a shared GPU: what SGLang takes outside its static memory


class DoesNotFitScenario(UsageError):
    """The model is too large for the scenario; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What was chosen for a model on a scenario's machine."""

    scenario: Scenario
    shape: ModelShape
    model: Path
    gpus: int  # of this machine; 0 for cpu
    capacity: int  # bytes of a device
    embedded: bool
    dtype: Literal["float32", "bfloat16"]  # of serving
    serving: int  # bytes of the engine on a device that it shares with training, 0 where it has its own
    plan: TrainingPlan
    longest: int  # tokens of a sample
    width: int  # GPUs of one engine

    @property
    def training_bytes(self) -> int:
        """The memory of a device that is left for training."""
        return self.capacity - self.serving

    @property
    def engines(self) -> int:
        """Engines that this machine serves with."""
        if self.scenario == "cluster":
            return 0
        return 1 if self.scenario != "node" else max(1, (self.gpus - self.plan.processes - self.judges) // self.width)

    @property
    def judges(self) -> int:
        """GPUs that only judge: one, where one is left."""
        left = self.gpus - self.plan.processes - (self.width if self.scenario == "node" else 0)
        return 1 if self.scenario in ("node", "cluster") and left >= 1 else 0


def choose(scenario: Scenario, model: Path, *, gpus: int, capacity: int) -> Setup:
    """What fits. Raises `DoesNotFitScenario`, and `TrainerUsageError` for a folder without a model."""
    shape = read_shape(model)
    config = json.loads((model / "config.json").read_text())
    dtype: Literal["float32", "bfloat16"] = "float32" if _dtype(config) == "float32" else "bfloat16"
    known = any(name in ARCHITECTURES for name in config.get("architectures") or ())
    width = _width(shape, dtype, capacity, gpus) if scenario == "node" else 1
    gpus = 0 if scenario == "cpu" else 1 if scenario == "one-gpu" else gpus
    tried: list[Setup] = []
    for longest in _lengths(scenario, shape):
        for plan in _plans(scenario, gpus, width, longest, dtype):
            setup = Setup(
                scenario=scenario,
                shape=shape,
                model=model,
                gpus=gpus,
                capacity=capacity,
                embedded=scenario == "cpu" and known and shape.num_parameters <= SMALL,
                dtype=dtype,
                serving=_shared(scenario, shape, dtype, longest) + _overhead(scenario, capacity),
                plan=plan,
                longest=longest,
                width=width,
            )
            tried.append(setup)
            if _fits(setup):
                return setup
    raise DoesNotFitScenario(_why(tried))


def _dtype(config: dict[str, object]) -> object:
    return config.get("dtype") or config.get("torch_dtype")


def _lengths(scenario: Scenario, shape: ModelShape) -> Iterator[int]:
    """The longest sample of the scenario, half and a quarter of it; never more than the model's context."""
    longest = min(LONGEST[scenario], shape.context or LONGEST[scenario])
    yield from (longest, longest // 2, longest // 4)


def _plans(scenario: Scenario, gpus: int, width: int, longest: int, dtype: str) -> Iterator[TrainingPlan]:
    precision: Literal["float32", "bfloat16"] = "bfloat16" if gpus and dtype == "bfloat16" else "float32"
    for processes in _processes(scenario, gpus, width):
        for checkpointing, offload in ((False, False), (True, False), (True, True)):
            if offload and not gpus:
                continue  # a CPU's moments are in CPU memory anyway
            for times in (4, 2, 1) if gpus else (1,):
                yield TrainingPlan(
                    precision=precision,
                    processes=processes,
                    tokens=times * longest,
                    checkpointing=checkpointing,
                    offload_optimizer=offload,
                )


def _processes(scenario: Scenario, gpus: int, width: int) -> Iterator[int]:
    """How many GPUs train: half of a node or more, as long as one engine has its own; on a cluster's trainer, most."""
    if scenario == "node":
        yield from range(max(1, gpus // 2), gpus - width + 1)
    elif scenario == "cluster":
        yield from dict.fromkeys((max(1, gpus - 1), gpus))
    else:
        yield 1


def _width(shape: ModelShape, dtype: str, capacity: int, gpus: int) -> int:
    """GPUs of one engine, a power of two. Raises `UsageError` where a node has too few to serve and train."""
    if gpus < 2:
        raise UsageError(
            f"scenario node needs two GPUs or more, and there is {gpus}: take --scenario one-gpu or --gpus N"
        )
    weights = serving_memory(shape, dtype=dtype, tokens=0).weights
    width = 1
    while weights > WEIGHTS_SHARE * capacity * width:
        width *= 2
    if width >= gpus:
        raise DoesNotFitScenario(
            f"{_gib(weights)} of weights need {width} GPUs of {_gib(capacity)} to serve, and training needs others: "
            f"{gpus} are too few; take --scenario cluster, or --gpus N with more of them"
        )
    return width


def _shared(scenario: Scenario, shape: ModelShape, dtype: str, longest: int) -> int:
    """Weights and KV cache of an engine that shares its device with training: half of the sessions at full length."""
    if scenario not in ("cpu", "one-gpu"):
        return 0
    return serving_memory(shape, dtype=dtype, tokens=SESSIONS[scenario] * longest // 2).total


def _overhead(scenario: Scenario, capacity: int) -> int:
    return int(ENGINE_OVERHEAD * capacity) if scenario == "one-gpu" else 0


def _fits(setup: Setup) -> bool:
    return training_memory(setup.shape, setup.plan).peak <= usable(setup.training_bytes)


def _why(tried: list[Setup]) -> str:
    """Why nothing fits, and what would: the smallest of what was tried."""
    least = min(tried, key=lambda setup: training_memory(setup.shape, setup.plan).peak + setup.serving)
    peak = training_memory(least.shape, least.plan).peak
    devices = _devices(least)
    serving = f" beside {_gib(least.serving)} of the engine" if least.serving else ""
    enough = peak / (usable(10**9) / 10**9) + least.serving
    larger = {"cpu": "one-gpu", "one-gpu": "node", "node": "cluster"}.get(least.scenario)
    return (
        f"{least.shape.num_parameters / 1e9:.3g} B parameters do not fit scenario {least.scenario}: with every saving "
        f"and samples of {least.longest} tokens, training needs {_gib(peak)} {devices}{serving}, and a device has "
        f"{_gib(least.capacity)}. What would fit: devices of {_gib(int(enough * 1.02))} (--device-gib)"
        + (f"; --scenario {larger}" if larger else "; more GPUs (--gpus)")
        + "; a smaller model"
    )


def _devices(setup: Setup) -> str:
    if setup.scenario == "cpu":
        return "of this machine's memory"
    return "of the GPU" if setup.plan.processes == 1 else f"on each of {setup.plan.processes} GPUs"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
