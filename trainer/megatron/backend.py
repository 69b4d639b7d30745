"""`trainer.backend = "megatron"`: a round's backend whose ranks divide the model as [trainer.megatron] says.

Invariant: what runs here imports no Megatron-core; the ranks do.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weir.trainer.errors import TrainerUsageError
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.rank_requests import LEARNER
from weir.trainer.learner.torchrun import TorchrunLearner
from weir.trainer.megatron.architecture import check_layout, check_reference, read_architecture
from weir.trainer.megatron.eight_bit_products import check_device, check_installed
from weir.trainer.settings.config import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDivided:
    """Join the groups of the layout, and load a rank's part of a folder; returns the optimiser steps taken so far."""

    folder: Path
    reference: Path
    config: TrainerConfig

    def run(self, ranks: Ranks, held: dict[str, Any]) -> int:
        """As `Request.run`."""
        del ranks  # those of the layout are copies of the model
        from weir.trainer.megatron.groups import join
        from weir.trainer.megatron.learner import MegatronLearner
        from weir.trainer.model.token_model import choose_device

        device = choose_device(self.config.device)
        copies = join(self.config.megatron, device)
        check_device(self.config.megatron, device)
        learner = held[LEARNER] = MegatronLearner(
            self.folder, self.config, device, copies, self.config.megatron, reference=self.reference
        )
        return learner.num_steps


def open_megatron(folder: Path, config: TrainerConfig, *, reference: Path) -> TorchrunLearner:
    """The ranks at a version folder.

    Raises `TrainerUsageError` for a model that the layout cannot divide, and `TrainerError` where a rank ends.
    """
    if find_spec("megatron") is None:
        raise TrainerUsageError("trainer.backend = megatron needs the extra: install weir[megatron]")
    check_installed(config.megatron)
    model = read_architecture(folder)
    check_layout(model, config.megatron, folder)
    check_reference(model, reference)
    return TorchrunLearner(folder, config, reference=reference, opening=OpenDivided)
