"""The interface between a round and its training backend: samples in, step statistics out, then the files of a version.

Contract: the result depends only on the folder, the settings, the samples and the seed. A backend of the same settings
resumes from the files that `save` wrote, of which only the weights have a fixed form (Hugging Face safetensors). Every
optimiser step divides by one denominator for all its tokens (`losses/normalization.py`), and no step is taken where a
loss or gradient is not finite. `tests/support_backend.py` is a small example.
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

_MEMBERS = ("folder", "config", "num_parameters", "num_steps", "train", "save")


class Backend(Protocol):
    """Weights loaded from one version folder, with the optimiser that steps them.

    `folder` is the version folder whose weights are held; the round assigns it after a checkpoint. `config` holds the
    settings that the backend was opened with.
    """

    folder: Path
    config: TrainerConfig

    @property
    def num_parameters(self) -> int:
        """Number of weights of the model."""
        ...

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken over all rounds up to the current weights; restored from the files of `save`."""
        ...

    def train(
        self,
        samples: Sequence[Sample],
        *,
        fresh_version: int,
        seed: int,
        supervised: Sequence[Sequence[SupervisedRow]] = (),
    ) -> list[StepStats]:
        """Take the round's optimiser steps, at most `config.epochs` × `config.optimizer_steps`; none without samples.

        Args:
            samples: Calls with P prompt ids and N output ids each, their advantages (per sample), logprobs in nats and
                weight versions (both of shape (N,)), as recorded by the proxy.
            fresh_version: The version of the weights at the start; tokens of this version must have the recorded
                logprobs up to rounding, which the statistics of the first step show.
            seed: Seed of the order of the samples and of dropout.
            supervised: Empty, or the supervised rows of each step, for at least as many steps as are taken.
                `config.sft_coef` times the mean cross-entropy of a step's rows, in nats per token, is added to its
                loss (the pretraining term of PPO-ptx, arXiv 2203.02155, equation 2).

        Returns:
            The statistics of each step, in order.

        Raises:
            NotFinite: A loss, a gradient or, after the last step, a weight is NaN or infinite.
            TrainerError: Training failed otherwise.
        """
        ...

    def save(self, folder: Path) -> Mapping[str, FileEntry]:
        """Write the weights, model configuration, tokenizer and all state of the backend into an existing folder.

        Returns:
            Name, sha256 and size in bytes of each file that is already synced to disk. The round syncs and hashes the
            others.

        Raises:
            OSError: A file cannot be written.
        """
        ...


class OpenBackend(Protocol):
    """A class or function, named by an import path, that opens a backend at a version folder.

    `reference` is the folder of the model that the KL divergence is taken from.
    """

    def __call__(self, folder: Path, config: TrainerConfig, *, reference: Path) -> Backend: ...


def open_backend(folder: Path, config: TrainerConfig, *, reference: Path) -> Backend:
    """Open the backend named by `config.backend` at a version folder.

    Raises:
        TrainerUsageError: The backend cannot be imported, raises, or returns something that is no backend.
        VersionError: The folder's optimiser state or critic cannot be loaded.
    """
    if config.backend == "megatron":
        from weir.trainer.megatron.backend import open_megatron

        return open_megatron(folder, config, reference=reference)
    if config.backend != "torch":
        return _open_other(import_function(config.backend), folder, config, reference)
    if config.processes > 1 or config.offload_weights:
        from weir.trainer.learner.torchrun import TorchrunLearner

        return TorchrunLearner(folder, config, reference=reference)
    from weir.trainer.learner.learner import Learner

    return Learner(folder, config, reference=reference)


def _open_other(open_other: OpenBackend, folder: Path, config: TrainerConfig, reference: Path) -> Backend:
    called = f"trainer.backend = {config.backend!r}, called with (folder, config, reference=…),"
    try:
        backend = open_other(folder, config, reference=reference)
    except TrainerError:  # its message is complete
        raise
    except (Exception, SystemExit) as error:  # users' code
        raise TrainerUsageError(f"{called} raised {in_a_line(error)}; it has to return a Backend") from error
    lacks = [name for name in _MEMBERS if not hasattr(backend, name)]
    if lacks:
        raise TrainerUsageError(f"{called} returned a {type(backend).__name__} that has no {', '.join(lacks)}")
    return backend
