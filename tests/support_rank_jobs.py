"""Ranks that open version folders one after the other, train there and save: what each read, owns and held.

Run by torchrun it is a rank.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from weir.trainer.credit.samples import Sample
from weir.trainer.settings.config import TrainerConfig


@dataclass(frozen=True, kw_only=True)
class RankJob:
    """Open `folder`, train on the samples if there are any, save into `out`."""

    folder: Path
    out: Path
    config: TrainerConfig
    samples: list[Sample] = field(default_factory=list)
    reference: Path | None = None


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What one rank did in one job; bytes of its own rows, and the most that it held in each phase."""

    rows_read: int
    rest_read: int
    policy_numbers: int  # of its own rows
    critic_numbers: int
    loading: int
    training: int
    saving: int


def run_jobs(jobs: list[RankJob], ranks: int, folder: Path) -> list[list[RankReport]]:
    """Run jobs on so many ranks of this machine; for each job, the reports of all ranks."""
    file = folder / f"jobs-{ranks}"
    file.write_bytes(pickle.dumps(jobs))
    for job in jobs:
        job.out.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    subprocess.run([*command, __file__, str(file)], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    reports: list[list[RankReport]] = pickle.loads(Path(f"{file}.done").read_bytes())
    return reports


def main(file: Path) -> None:
    """Do all jobs of a file."""
    from support_memory import LiveBytes
    from support_rank_jobs import RankReport  # the class that the test knows, and not that of __main__

    from weir.trainer.learner.distributed import Ranks
    from weir.trainer.learner.learner import Learner
    from weir.trainer.learner.rank_requests import dividing
    from weir.trainer.model.sharded_model import local_rows

    ranks = Ranks.of_torchrun(torch.device("cpu"))
    reports = []
    for job in pickle.loads(file.read_bytes()):
        peaks = []
        with LiveBytes() as held:
            own = dividing(ranks, job.config)
            learner = Learner(job.folder, job.config, reference=job.reference, ranks=own)
            peaks.append(held.peak)
            held.peak = 0
            for seed in range(2):  # from the second step on there are moments
                learner.train(job.samples, fresh_version=0, seed=seed)
            peaks.append(held.peak)
            held.peak = 0
            learner.save(job.out)
            peaks.append(held.peak)
        modules = [learner.model, *([] if learner.critic is None else [learner.critic.model])]
        numbers = [sum(local_rows(p).numel() for p in module.parameters()) for module in modules]
        report = RankReport(
            rows_read=learner.read.rows,
            rest_read=learner.read.rest,
            policy_numbers=numbers[0],
            critic_numbers=sum(numbers[1:]),
            loading=peaks[0],
            training=peaks[1],
            saving=peaks[2],
        )
        reports.append(ranks.gather(report))
    if ranks.rank == 0:
        Path(f"{file}.done").write_bytes(pickle.dumps(reports))
    dist.barrier()
    os._exit(0)  # gloo's threads sometimes abort an interpreter that winds down (torch 2.13)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
