"""Processes of the Megatron backend on CPUs that do one job after the other, each with a layout of its own.

Run by torchrun it is such a process.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
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


@dataclass(frozen=True, kw_only=True)
class StateJob:
    """Load `folder`, train a round of `samples`, if there are any, and save into `out`."""

    folder: Path
    out: Path
    layout: MegatronSettings
    reference: Path
    config: TrainerConfig
    samples: list[Sample] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class StateResult:
    """What one process has read of tensors while it loaded, in bytes, and how many weights it holds and owns,
    and of these steps in CPU memory."""

    bytes_read: int
    numbers: int
    owned: int
    on_host: int
    critic_numbers: int
    critic_owned: int


def run_jobs(jobs: Sequence[Any], processes: int, folder: Path) -> list[Any]:
    """Do jobs on so many processes of this machine; a `MegatronResult` of each, or the `StateResult`s of its processes.

    Raises `CalledProcessError` where one fails."""
    file = Path(tempfile.mkdtemp(dir=folder)) / "jobs"
    file.write_bytes(pickle.dumps(jobs))
    for job in jobs:
        job.out.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TORCHDYNAMO_DISABLE": "1"}  # compiling takes minutes
    subprocess.run([*command, __file__, str(file)], check=True, env=os.environ | quiet)
    results: list[Any] = pickle.loads(Path(f"{file}.done").read_bytes())
    return results


def main(file: Path) -> None:
    """Do all jobs of a file."""
    import support_megatron_cpu

    support_megatron_cpu.install()
    import torch.distributed as dist
    from support_megatron import MegatronResult, StateJob  # the classes that the test knows, and not those of __main__

    from weir.trainer.megatron.groups import join, leave

    results = []
    for job in pickle.loads(file.read_bytes()):
        ranks = join(job.layout, CPU)
        if isinstance(job, StateJob):
            results.append(_saved(job, ranks))
        else:
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
    assert learner.network.config.bias_activation_fusion == job.layout.fused_activations
    logprobs = learner._score_by_policy(job.samples)
    learner.score(job.samples)
    learner.stepper.clear()
    stats = learner.accumulate(job.samples, job.fresh_version)
    mixed = learner.accumulate_mixed(job.rows)
    learner.stepper.sum_over_ranks(whole=True)
    write(learner.published(), job.out)
    return logprobs, _gathered(learner), [stats, mixed, learner.stepper.norm()]


def _saved(job: StateJob, ranks: Any) -> list[StateResult]:
    from support_megatron import StateResult

    from weir.trainer.megatron.learner import MegatronLearner

    learner = MegatronLearner(job.folder, job.config, CPU, ranks, job.layout, reference=job.reference)
    assert learner.critic is not None
    numbers, owned = _counts(learner.network, learner.stepper)
    of_critic = _counts(learner.critic.trained.network, learner.critic.stepper)
    result = StateResult(
        bytes_read=learner.read.rows,
        numbers=numbers,
        owned=owned,
        on_host=sum(shard.main.numel() for shard in learner.stepper.owned if hasattr(shard.main, "is_on_host")),
        critic_numbers=of_critic[0],
        critic_owned=of_critic[1],
    )
    learner.train(job.samples, fresh_version=2, seed=0)
    learner.save(job.out)
    return ranks.of_all(result)  # type: ignore[no-any-return]


def _counts(network: Any, stepper: Any) -> tuple[int, int]:
    """Weights that a process holds, and those whose state it owns."""
    return sum(p.numel() for p in network.parameters()), sum(shard.stop - shard.start for shard in stepper.owned)


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
