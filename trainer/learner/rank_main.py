"""One rank of a training run on several processes; torchrun starts one for each (`torchrun.py`).

Invariant: all ranks read the same job and take the same decisions; only the first writes. Argument: a folder with
`job.pickle`, in which it leaves `steps.pickle` and the files of a version under `files/`.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import torch.distributed as dist

from weir.store.parent_death import end_with_parent
from weir.trainer.errors import NotFinite
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.torchrun import (
    JOB_FILE,
    LAUNCHER_FILE,
    NOT_FINITE_FILE,
    STATE_FILES,
    STEPS_FILE,
    VERSION_FILES,
    Job,
)
from weir.trainer.model.token_model import choose_device


def main(folder: Path) -> None:
    """Train the job's samples and write the result into its folder."""
    end_with_parent(parent_pid=int((folder / LAUNCHER_FILE).read_text()))
    job: Job = pickle.loads((folder / JOB_FILE).read_bytes())
    gathers_half = job.config.gather_precision == "bfloat16"
    ranks = Ranks.of_torchrun(choose_device(job.config.device), gathers_half=gathers_half)
    try:
        learner = Learner(job.folder, job.config, reference=job.reference, ranks=ranks, state=job.state)
        steps = learner.train(job.samples, fresh_version=job.fresh_version, seed=job.seed, supervised=job.supervised)
        learner.save(folder / VERSION_FILES, state=folder / (VERSION_FILES if job.keeps_state else STATE_FILES))
        if ranks.rank == 0:
            (folder / STEPS_FILE).write_bytes(pickle.dumps(steps))
    except NotFinite as error:
        if ranks.rank == 0:
            (folder / NOT_FINITE_FILE).write_text(str(error))
    dist.barrier()  # no rank exits before the first has written
    os._exit(0)  # gloo's threads sometimes abort an interpreter during its shutdown (torch 2.13)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
