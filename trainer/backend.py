"""What a round asks of whatever trains: samples in, figures out, then the files of a version.

Invariant: the result depends on the folder, the settings, the samples and the seed only, and the files that `save`
leaves are what another backend of the same settings begins with. Every optimiser step has one denominator for all its
tokens (`loss_means.py`), and nothing is stepped where a loss or gradient is not finite. Not here: what is in those
files but the weights in Hugging Face's form. A second one is `tests/support_backend.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.errors import TrainerError, TrainerUsageError
from weir.trainer.import_path import import_function, in_a_line
from weir.trainer.learner.step_stats import StepStats
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import FileEntry

_OF_A_BACKEND = ("folder", "config", "num_parameters", "num_steps", "train", "save")


class Backend(Protocol):
    """Weights at one version folder, and how they are stepped."""

    folder: Path  # the version that it stands at; the round sets it after a checkpoint
    config: TrainerConfig

    @property
    def num_parameters(self) -> int:
        """How many numbers the model has."""
        ...

    @property
    def num_steps(self) -> int:
        """How many optimiser steps led to the weights, over all rounds; kept among the files that `save` writes."""
        ...

    def train(
        self,
        samples: Sequence[Sample],
        *,
        fresh_version: int,
        seed: int,
        supervised: Sequence[Sequence[SupervisedRow]] = (),
    ) -> list[StepStats]:
        """Take the round's optimiser steps over the samples; none where there are none. Raises `NotFinite`.

        `supervised` is empty, or has rows for as many steps as are taken or more, in their order: `config.sft_coef`
        times the mean cross-entropy of a step's rows is added to its loss.
        """
        ...

    def save(self, folder: Path) -> Mapping[str, FileEntry]:
        """Write weights, configuration, tokenizer and whatever is needed to go on into an existing folder.

        Files that it has brought to disk and hashed by itself are returned; the others are left to the round.
        """
        ...


class OpenBackend(Protocol):
    """What an import path names: a class or function that gives a backend standing at a folder."""

    def __call__(self, folder: Path, config: TrainerConfig, *, reference: Path) -> Backend: ...


def open_backend(folder: Path, config: TrainerConfig, *, reference: Path) -> Backend:
    """The backend that the settings name, standing at a folder.

    Raises `TrainerUsageError` where it cannot be imported, raises, or gives no backend.
    """
    if config.backend != "torch":
        return _open_other(import_function(config.backend), folder, config, reference)
    if config.processes > 1:
        from weir.trainer.learner.torchrun import TorchrunLearner

        return TorchrunLearner(folder, config, reference=reference)
    from weir.trainer.learner.learner import Learner

    return Learner(folder, config, reference=reference)


def _open_other(open_other: OpenBackend, folder: Path, config: TrainerConfig, reference: Path) -> Backend:
    called = f"trainer.backend = {config.backend!r}, called with (folder, config, reference=…),"
    try:
        backend = open_other(folder, config, reference=reference)
    except TrainerError:  # one that says itself what is wrong
        raise
    except (Exception, SystemExit) as error:  # users' code
        raise TrainerUsageError(f"{called} raised {in_a_line(error)}; it has to give a Backend") from error
    lacks = [name for name in _OF_A_BACKEND if not hasattr(backend, name)]
    if lacks:
        raise TrainerUsageError(f"{called} gave a {type(backend).__name__} that has no {', '.join(lacks)}")
    return backend
