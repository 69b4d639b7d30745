"""A backend of several processes on this machine: each round's training is one run of torchrun.

Invariant: the processes live for one round and load its parent's folder, so a round on ranks resumes exactly as a round
in one process does, and a process that dies costs its round only. They read the samples from a file in a temporary
work folder and leave the files of the new version there. They end with the process that started them, even if it is
killed; the next start deletes work folders whose owners were killed.
"""

from __future__ import annotations

import fcntl
import math
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from weir.store.parent_death import end_with_parent
from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.errors import NotFinite, TrainerError
from weir.trainer.learner.saved_state import NUM_STEPS, POLICY, saved_state
from weir.trainer.learner.step_stats import StepStats
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import FileEntry, has_state


class WorkFolder:
    """A new temporary folder whose name begins with `prefix`.

    Its owner holds a lock on it, which the kernel releases however the process ends; a folder without a locked owner is
    deleted when the next one is made.
    """

    def __init__(self, prefix: str) -> None:
        _delete_ownerless(prefix)
        self.path, lock = _new_folder(prefix)
        self._end = weakref.finalize(self, _delete, self.path, lock)

    def close(self) -> None:
        """Delete the folder; its garbage collection does the same. May be called twice."""
        self._end()


def _new_folder(prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # deleted as ownerless before it was locked
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)


def _delete(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _delete_ownerless(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            lock = os.open(path, os.O_RDONLY)
        except OSError:  # deleted meanwhile, or another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # its owner lives
            pass
        finally:
            os.close(lock)


JOB_FILE = "job.pickle"
STEPS_FILE = "steps.pickle"
NOT_FINITE_FILE = "not_finite.txt"
VERSION_FILES = "files"
STATE_FILES = "state"  # the optimiser's state, where the version does not keep it
LAUNCHER_FILE = "launcher.pid"
FOLDER_PREFIX = "weir-ranks-"
TAIL_CHARS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The input of a round's processes."""

    folder: Path
    reference: Path
    config: TrainerConfig
    samples: list[Sample]
    fresh_version: int
    seed: int
    supervised: list[list[SupervisedRow]]
    state: Path | None  # the folder of the optimiser's state, where it is not that of the weights
    keeps_state: bool  # whether the version holds the state


class TorchrunLearner:
    """A backend that trains with `config.processes` processes.

    With `keep_state_every` the state of a version without it lies in the temporary work folder, until the next round
    has ended.
    """

    def __init__(self, folder: Path, config: TrainerConfig, *, reference: Path | None = None) -> None:
        self.folder = folder
        self.config = config
        self.reference = reference or folder
        self._work: WorkFolder | None = None
        self._carried: WorkFolder | None = None  # holds the state of `folder`, which does not
        self._saves_without_state = 0

    @property
    def num_parameters(self) -> int:
        """Number of weights in the folder's safetensors files."""
        count = 0
        for file in self.folder.glob("*.safetensors"):
            with safe_open(file, framework="np") as weights:
                names = weights.keys()
                count += sum(math.prod(weights.get_slice(name).get_shape()) for name in names)
        return count

    @property
    def num_steps(self) -> int:
        """Optimiser steps recorded in the folder's optimiser state; 0 without one."""
        saved = saved_state(self._state or self.folder)
        return 0 if saved is None else int(saved.rows(f"{POLICY}/{NUM_STEPS}", 0, 1))

    def train(
        self,
        samples: Sequence[Sample],
        *,
        fresh_version: int,
        seed: int,
        supervised: Sequence[Sequence[SupervisedRow]] = (),
    ) -> list[StepStats]:
        """Take the round's optimiser steps. Raises `NotFinite`, and `TrainerError` when a process dies."""
        job = Job(
            folder=self.folder.absolute(),
            reference=self.reference.absolute(),
            config=self.config,
            samples=list(samples),
            fresh_version=fresh_version,
            seed=seed,
            supervised=[list(rows) for rows in supervised],
            state=self._state,
            keeps_state=self._saves_without_state + 1 >= self.config.keep_state_every,
        )
        work = WorkFolder(FOLDER_PREFIX)
        try:
            steps = self._steps(work.path, job)
        except BaseException:
            work.close()
            raise
        self._work = work
        return steps

    def save(self, folder: Path) -> dict[str, FileEntry]:
        """Move the files that `train` left into an existing folder; the caller syncs and hashes all of them."""
        assert self._work is not None, "there is nothing to save before training"
        for file in sorted((self._work.path / VERSION_FILES).iterdir()):
            shutil.move(file, folder / file.name)
        if self._carried is not None:
            self._carried.close()
        carries = has_state(self._work.path / STATE_FILES)
        self._saves_without_state = self._saves_without_state + 1 if carries else 0
        self._carried = self._work if carries else None
        if not carries:
            self._work.close()
        self._work = None
        return {}

    @property
    def _state(self) -> Path | None:
        return None if self._carried is None else self._carried.path / STATE_FILES

    def _steps(self, folder: Path, job: Job) -> list[StepStats]:
        """Run the processes; the new version's files are in the folder afterwards."""
        for name in (VERSION_FILES, STATE_FILES):
            (folder / name).mkdir()
        (folder / JOB_FILE).write_bytes(pickle.dumps(job))
        self._run(folder)
        steps: list[StepStats] = pickle.loads((folder / STEPS_FILE).read_bytes())
        return steps

    def _run(self, folder: Path) -> None:
        resumed = "the round stays open and the next start resumes it"
        run_ranks("weir.trainer.learner.rank_main", folder, self.config.processes, resumed)


def run_ranks(module: str, folder: Path, processes: int, resumed: str) -> None:
    """Run a module with torchrun over a work folder, in which its first rank leaves `STEPS_FILE` when it is done.

    Raises `NotFinite` where a rank wrote `NOT_FINITE_FILE`, and `TrainerError` where a process died; `resumed` tells
    the user what the next start does.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", module, str(folder)]
    ours = os.getpid()

    def enter() -> None:
        end_with_parent(parent_pid=ours)
        (folder / LAUNCHER_FILE).write_text(str(os.getpid()))

    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=enter)
    if (folder / NOT_FINITE_FILE).exists():
        raise NotFinite((folder / NOT_FINITE_FILE).read_text())
    if done.returncode or not (folder / STEPS_FILE).exists():
        raise TrainerError(
            f"training on {processes} processes ended with status {done.returncode}; {resumed}. The end of its "
            f"stderr:\n{done.stderr[-TAIL_CHARS:]}"
        )
