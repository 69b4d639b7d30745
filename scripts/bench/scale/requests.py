"""What `weir bench scale` asks of its ranks (`trainer/launch/pool.py`): open a model, take a step, save, write bytes.

Memory is the resident memory that a rank has beyond what it had with everything imported.
"""

from __future__ import annotations

import importlib.util
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.scripts.bench.processes import own_peak_bytes, reset_own_peak
from weir.trainer.credit.samples import Sample
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.megatron import MegatronSettings

LEARNER, BEFORE = "learner", "before"
BLOCK = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a rank owns, and the bytes of files that it read for it."""

    numbers: int  # of the model's, this rank's own
    rows_read: int
    rest_read: int  # headers and directories of files


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Load a version folder by the torch backend; returns an `Opened` for each rank."""

    folder: Path
    config: TrainerConfig

    def run(self, ranks: Any, held: dict[str, Any]) -> list[Opened]:
        """As `Request.run`."""
        from weir.trainer.learner.learner import Learner
        from weir.trainer.model.sharded_model import local_rows

        held[BEFORE] = reset_own_peak()
        learner = held[LEARNER] = Learner(self.folder, self.config, ranks=ranks)
        own = sum(local_rows(parameter).numel() for parameter in learner.model.parameters())
        found: list[Opened] = ranks.gather(
            Opened(numbers=own, rows_read=learner.read.rows, rest_read=learner.read.rest)
        )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMegatron:
    """Load a model folder by Megatron-core, which runs on CPUs by what `shims` installs."""

    folder: Path
    config: TrainerConfig
    layout: MegatronSettings
    shims: Path

    def run(self, ranks: Any, held: dict[str, Any]) -> None:
        """As `Request.run`."""
        import torch

        spec = importlib.util.spec_from_file_location("megatron_shims", self.shims)
        assert spec is not None and spec.loader is not None
        shims = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(shims)
        shims.install()
        from weir.trainer.megatron.groups import join
        from weir.trainer.megatron.learner import MegatronLearner

        cpu = torch.device("cpu")
        held[BEFORE] = reset_own_peak()
        held[LEARNER] = MegatronLearner(
            self.folder, self.config, cpu, join(self.layout, cpu), self.layout, reference=self.folder
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One optimiser step of all ranks."""

    seconds: float
    cpu_seconds: float  # of all threads of all ranks
    loss: float
    peak_bytes: int  # the most that a rank has had so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Take one optimiser step on so many threads a rank; returns a `Taken`."""

    samples: list[Sample]
    threads: int

    def run(self, ranks: Any, held: dict[str, Any]) -> Taken:
        """As `Request.run`."""
        learner = held[LEARNER]
        learner.config = learner.config.model_copy(update={"torch_threads": self.threads})
        started, used = time.perf_counter(), time.process_time()
        (stats,) = learner.train(self.samples, fresh_version=0, seed=0)
        seconds = time.perf_counter() - started
        of_all = ranks.gather((time.process_time() - used, own_peak_bytes() - held[BEFORE]))
        return Taken(
            seconds=seconds,
            cpu_seconds=sum(used for used, _ in of_all),
            loss=float(stats.loss),
            peak_bytes=max(peak for _, peak in of_all),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Write weights and optimiser state into an existing folder, all ranks at once."""

    folder: Path

    def run(self, ranks: Any, held: dict[str, Any]) -> None:
        """As `Request.run`."""
        del ranks
        held[LEARNER].save(self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBytes:
    """Write `num_bytes` into an existing folder, all ranks at once, each its share into a file of its own."""

    folder: Path
    num_bytes: int

    def run(self, ranks: Any, held: dict[str, Any]) -> None:
        """As `Request.run`."""
        del held
        block = os.urandom(BLOCK)
        with (self.folder / f"bytes-{ranks.rank}").open("wb", buffering=0) as file:
            for _ in range(self.num_bytes // ranks.count // BLOCK):
                file.write(block)
        ranks.gather(None)
