"""Ranks that stay: two under torchrun that answer one question after the other about gradients, and some that hang.

Run by torchrun it is a rank; the first speaks with the test over its standard input and output, in pickles.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from weir.trainer.credit.samples import Sample
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.torchrun import TorchrunLearner
from weir.trainer.settings.config import TrainerConfig


class RankPair:
    """Two ranks that wait for a step."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def whole_gradient(
        self, folder: Path, reference: Path, config: TrainerConfig, samples: list[Sample]
    ) -> dict[str, torch.Tensor]:
        """As `support_gradients.whole_gradient`, by both together. Raises `EOFError` where one of them died."""
        assert self.process.stdin is not None and self.process.stdout is not None
        pickle.dump((folder, reference, config, samples), self.process.stdin)
        self.process.stdin.flush()
        found: dict[str, torch.Tensor] = pickle.load(self.process.stdout)
        return found


@contextmanager
def rank_pair(device: str = "cpu") -> Iterator[RankPair]:
    """Two ranks on this machine; they leave when their input ends."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__, device]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        yield RankPair(process)
        assert process.stdin is not None
        process.stdin.close()


class ReadsForever:
    """What a rank that unpickles it reads until the other end is closed."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return eval, (f"open({str(self.file)!r}).read()",)


def train_on_what_is_read_forever(model: Path, config: TrainerConfig, fifo: Path, temporary: Path) -> None:
    """Start ranks that read a FIFO in place of a sample, with work folders in `temporary`; wait for them."""
    tempfile.tempdir = str(temporary)
    TorchrunLearner(model, config).train([ReadsForever(fifo)], fresh_version=0, seed=0)  # type: ignore[list-item]


def main(device: str) -> None:
    """Answer until the input ends."""
    from support_gradients import whole_gradient

    from weir.trainer.learner.rank_requests import dividing

    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    ranks = Ranks.of_torchrun(torch.device(device))
    while (job := _next_job(ranks)) is not None:
        gradient = whole_gradient(*job, dividing(ranks, job[2]))
        if ranks.rank == 0:
            pickle.dump(gradient, answers)
            answers.flush()
    dist.barrier()
    os._exit(0)  # gloo's threads sometimes abort an interpreter that winds down (torch 2.13)


def _next_job(ranks: Ranks) -> Any:
    """What the first rank reads, on both; None at the end of its input."""
    job: list[Any] = [None]
    if ranks.rank == 0:
        with suppress(EOFError):
            job = [pickle.load(sys.stdin.buffer)]
    dist.broadcast_object_list(job)
    return job[0]


if __name__ == "__main__":
    main(sys.argv[1])
