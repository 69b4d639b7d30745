"""A backend of several processes, on this machine or on several: ranks under torchrun that stay between rounds.

Invariant: what the ranks hold after a round is, to the bit, what new ones load from the version that it made, so a
round resumes exactly as a round in one process does, and a process that dies costs the round's attempt only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from safetensors import safe_open

from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.launch.pool import RankPool, Request
from weir.trainer.learner.rank_publish import Offer, Send
from weir.trainer.learner.rank_requests import Open, Save, Train
from weir.trainer.learner.step_stats import StepStats
from weir.trainer.model.owned_tensors import Meeting, OwnedBucket, Sent
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import FileEntry

RESUMED = "the round stays open and the next start resumes it"


class TorchrunLearner:
    """A backend that trains with `config.processes` processes."""

    def __init__(
        self,
        folder: Path,
        config: TrainerConfig,
        *,
        reference: Path | None = None,
        opening: Callable[..., Request] = Open,
    ) -> None:
        """Start the processes, and load by the request that `opening` makes. Raises `TrainerError` where one ends."""
        self.folder = folder
        self.config = config
        self.reference = reference or folder
        self._ranks = RankPool(config.processes, config.device, config.launch, resumed=RESUMED)
        opened = opening(folder=folder.absolute(), reference=self.reference.absolute(), config=config)
        self._num_steps: int = self._ranks.call(opened)

    @property
    def is_alive(self) -> bool:
        """Whether the processes wait for a round; one that died between rounds has ended all of them."""
        return self._ranks.is_alive

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
        """Optimiser steps taken over all rounds."""
        return self._num_steps

    def train(
        self,
        samples: Sequence[Sample],
        *,
        fresh_version: int,
        seed: int,
        supervised: Sequence[Sequence[SupervisedRow]] = (),
    ) -> list[StepStats]:
        """Take the round's optimiser steps. Raises `NotFinite`, and `TrainerError` when a process dies."""
        job = Train(
            samples=list(samples),
            fresh_version=fresh_version,
            seed=seed,
            supervised=[list(rows) for rows in supervised],
        )
        steps, self._num_steps = self._ranks.call(job)
        return list(steps)

    def save(self, folder: Path) -> dict[str, FileEntry]:
        """Have the ranks write a version's files into an existing folder; the caller syncs and hashes all of them.

        Raises `TrainerError` when a process dies.
        """
        self._ranks.call(Save(folder=folder.absolute(), like=self.folder.absolute()))
        return {}

    def offer(self, bucket_bytes: int) -> list[OwnedBucket]:
        """Have the ranks agree on who sends which tensors of the folder to engines; the buckets in their order.

        Raises `TrainerError` when a process dies.
        """
        buckets: list[OwnedBucket] = self._ranks.call(Offer(bucket_bytes=bucket_bytes))
        return buckets

    def send(self, meeting: Meeting) -> Sent:
        """Have the ranks send what they offered. Raises `TrainerError` when a process dies."""
        sent: Sent = self._ranks.call(Send(meeting=meeting))
        return sent

    @property
    def address(self) -> str | None:
        """Where ranks on other machines reach this one; None where all run here."""
        return self._ranks.address

    def kill(self) -> None:
        """End the processes in the middle of a request, which raises `TrainerError`."""
        self._ranks.kill()

    def close(self) -> None:
        """End the processes; garbage collection does the same. May be called twice."""
        self._ranks.close()
