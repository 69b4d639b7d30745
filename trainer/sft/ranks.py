"""A cold start on several processes of this machine: one run of torchrun over a job in a work folder.

Invariant: all ranks read the same job; only the first writes checkpoints and files. A run that is killed, with its
ranks, resumes from its last checkpoint as a run in one process does. `python -m weir.trainer.sft.ranks FOLDER` is one
rank.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from rich.console import Console

from weir.store.parent_death import end_with_parent
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.errors import NotFinite
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.torchrun import (
    FOLDER_PREFIX,
    JOB_FILE,
    LAUNCHER_FILE,
    NOT_FINITE_FILE,
    STEPS_FILE,
    VERSION_FILES,
    WorkFolder,
    run_ranks,
)
from weir.trainer.model.token_model import choose_device
from weir.trainer.settings.config import SftConfig
from weir.trainer.sft.resume import SftProgress
from weir.trainer.sft.supervised_learner import SupervisedLearner, batches_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SftJob:
    """The input of the processes."""

    config: SftConfig
    model: Path
    rows: list[SupervisedRow]
    held_back: list[SupervisedRow]
    progress: SftProgress


class TrainedOnRanks:
    """The files that ranks made, until they are moved into a version folder."""

    def __init__(
        self,
        config: SftConfig,
        model: Path,
        rows: Sequence[SupervisedRow],
        held_back: Sequence[SupervisedRow],
        progress: SftProgress,
    ) -> None:
        """Train. Raises `NotFinite`, and `TrainerError` where a process dies."""
        self._work = WorkFolder(FOLDER_PREFIX)
        folder = self._work.path
        (folder / VERSION_FILES).mkdir()
        job = SftJob(
            config=config, model=model.absolute(), rows=list(rows), held_back=list(held_back), progress=progress
        )
        (folder / JOB_FILE).write_bytes(pickle.dumps(job))
        try:
            run_ranks(__name__, folder, config.processes, "the next start resumes from its last checkpoint")
            progress.losses, progress.validation = pickle.loads((folder / STEPS_FILE).read_bytes())
        except BaseException:
            self._work.close()
            raise

    def save(self, folder: Path) -> None:
        """Move the files into an existing folder."""
        for file in sorted((self._work.path / VERSION_FILES).iterdir()):
            shutil.move(file, folder / file.name)
        self._work.close()


def main(folder: Path) -> None:
    """Train as one rank; the first writes the result into the job's folder."""
    end_with_parent(parent_pid=int((folder / LAUNCHER_FILE).read_text()))
    job: SftJob = pickle.loads((folder / JOB_FILE).read_bytes())
    ranks = Ranks.of_torchrun(choose_device(job.config.device))
    try:
        learner = SupervisedLearner(job.config, job.model, len(batches_of(job.rows, job.config)), ranks)
        learner.train(job.rows, job.held_back, job.progress, Console(quiet=True))
        learner.save(folder / VERSION_FILES)
        if ranks.rank == 0:
            (folder / STEPS_FILE).write_bytes(pickle.dumps((job.progress.losses, job.progress.validation)))
    except NotFinite as error:
        if ranks.rank == 0:
            (folder / NOT_FINITE_FILE).write_text(str(error))
    dist.barrier()  # no rank exits before the first has written
    os._exit(0)  # gloo's threads sometimes abort an interpreter during its shutdown (torch 2.13)


if __name__ == "__main__":
    from weir.trainer.sft import ranks as module  # the pickled job names classes of the imported module

    module.main(Path(sys.argv[1]))
