"""Processes of the Megatron backend on CPUs that do one job after the other, each with a layout of its own.

Run by torchrun it is such a process.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.megatron import MegatronSettings

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class MegatronJob:
    """The gradient of one step of `folder`, whose weights are then written into `out`."""

    folder: Path
    out: Path
    layout: MegatronSettings
    reference: Path
    config: TrainerConfig
    samples: list[Sample]
    rows: list[SupervisedRow] = field(default_factory=list)
    fresh_version: int = 2


@dataclass(frozen=True, kw_only=True)
class MegatronResult:
    """What came of a job on the first process: gradients by stored name."""

    logprobs: dict[str, Any]
    gradients: dict[str, torch.Tensor]
    figures: list[Any]


def run_jobs(jobs: list[MegatronJob], processes: int, folder: Path) -> list[MegatronResult]:
    """Do jobs on so many processes of this machine. Raises `CalledProcessError` where one fails."""
    file = folder / f"jobs-{processes}"
    file.write_bytes(pickle.dumps(jobs))
    for job in jobs:
        job.out.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    subprocess.run([*command, __file__, str(file)], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    results: list[MegatronResult] = pickle.loads(Path(f"{file}.done").read_bytes())
    return results


def main(file: Path) -> None:
    """Do all jobs of a file."""
    import support_megatron_cpu

    support_megatron_cpu.install()
    import torch.distributed as dist
    from support_megatron import MegatronResult  # the class that the test knows, and not that of __main__

    from weir.trainer.megatron.groups import join, leave

    results = []
    for job in pickle.loads(file.read_bytes()):
        ranks = join(job.layout, CPU)
        logprobs, gradients, figures = _do(job, ranks)
        results.append(MegatronResult(logprobs=logprobs, gradients=gradients, figures=figures))
        dist.barrier()
        leave()
    if dist.get_rank() == 0:
        Path(f"{file}.done").write_bytes(pickle.dumps(results))
    dist.barrier()
    os._exit(0)  # gloo's threads sometimes abort an interpreter that winds down (torch 2.13)


def _do(job: MegatronJob, ranks: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor], list[Any]]:
    from weir.trainer.megatron.learner import MegatronLearner
    from weir.trainer.megatron.weights import write

    learner = MegatronLearner(job.folder, job.config, CPU, ranks, job.layout, reference=job.reference)
    assert learner.network.config.sequence_parallel == (job.layout.sequence and job.layout.tensor > 1)
    logprobs = learner._score_by_policy(job.samples)
    learner.score(job.samples)
    learner.stepper.clear()
    stats = learner.accumulate(job.samples, job.fresh_version)
    mixed = learner.accumulate_mixed(job.rows)
    learner.stepper.sum_over_ranks(whole=True)
    write(learner.network, learner.architecture, learner.place, job.out)
    return logprobs, _gathered(learner), [stats, mixed, learner.stepper.norm()]


def _gathered(learner: Any) -> dict[str, torch.Tensor]:
    """The gradient by stored name, whole, on every process."""
    from weir.trainer.megatron.weights import hand_out

    parts = hand_out(learner.network, learner.architecture, learner.place, lambda p: p.main_grad.clone())
    found: dict[str, list[tuple[int, torch.Tensor]]] = {}
    for of_one in learner.ranks.of_all([(name, start, rows) for name, rows, start in parts]):
        for name, start, rows in of_one:
            found.setdefault(name, []).append((start, rows))
    return {
        name: torch.cat([rows for _, rows in sorted(of_name, key=lambda part: part[0])])
        for name, of_name in found.items()
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
