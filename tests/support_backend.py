"""A second backend for rounds, as small as the protocol allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.learner.step_stats import StepStats, TokenStats
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import FileEntry, copy_tokenizer

STEPS_FILE = "num_steps.txt"


class PlainBackend:
    """REINFORCE with plain gradient descent, one sample at a time and with whole logits: all that the protocol asks."""

    def __init__(self, folder: Path, config: TrainerConfig, *, reference: Path) -> None:
        del reference
        self.folder, self.config = folder, config
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.num_steps = int((folder / STEPS_FILE).read_text()) if (folder / STEPS_FILE).exists() else 0

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def train(
        self,
        samples: Sequence[Sample],
        *,
        fresh_version: int,
        seed: int,
        supervised: Sequence[Sequence[SupervisedRow]] = (),
    ) -> list[StepStats]:
        assert not supervised, "the settings of these tests mix nothing in"
        if not samples:
            return []
        num_tokens = sum(len(sample.output_ids) for sample in samples)
        stats = TokenStats(num_tokens=num_tokens, sample_tokens=1, computed_tokens=1, ratio_sum=1, ratio_square_sum=1)
        self.model.zero_grad()
        for sample in samples:
            ids = torch.from_numpy(sample.ids.astype(np.int64))
            logprobs = torch.log_softmax(self.model(ids[None]).logits[0, :-1] / sample.temperature, -1)
            chosen = logprobs[torch.arange(len(ids) - 1), ids[1:]][len(sample.prompt_ids) - 1 :]
            loss = -sample.advantage * chosen.sum() / num_tokens
            loss.backward()
            stats.loss += float(loss.detach())
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter -= self.config.lr * parameter.grad
        self.num_steps += 1
        return [stats.finished(grad_norm=1.0, num_samples=len(samples))]

    def save(self, folder: Path) -> dict[str, FileEntry]:
        self.model.save_pretrained(folder)
        copy_tokenizer(self.folder, folder)
        (folder / STEPS_FILE).write_text(str(self.num_steps))
        return {}
