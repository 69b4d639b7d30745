"""Assigns the supervised rows that rounds mix in to optimiser steps.

Invariant: the rows of a step are a pure function of the data, the seed and the number of the step over all rounds,
which the optimiser's state holds. So a resumed or replayed round mixes in the same rows, and a rollback also returns to
earlier data. Epochs of the rows, each in another order, form one endless sequence of targets; with n targets per step,
step k gets the rows that begin in [k n, (k + 1) n). No row is longer than n, so every step gets at least one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weir.trainer.data.dataset import SupervisedRow, digest_of, read_data
from weir.trainer.data.rows import OpenRenderer, RowMaker
from weir.trainer.errors import RoundError, TrainerUsageError
from weir.trainer.rounds.claims import ClaimedRound
from weir.trainer.settings.config import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedRows:
    """The rows of all steps."""

    rows: Sequence[SupervisedRow]
    tokens_per_step: int
    seed: int
    num_too_long: int = 0  # rows that were dropped

    def of_step(self, step: int) -> list[SupervisedRow]:
        """The rows of step 0, 1, … of all rounds: on average `tokens_per_step` targets, at least one row."""
        begin, end = step * self.tokens_per_step, (step + 1) * self.tokens_per_step
        lengths = np.asarray([row.num_targets for row in self.rows])
        of_epoch = int(lengths.sum())
        found: list[SupervisedRow] = []
        for epoch in range(begin // of_epoch, (end - 1) // of_epoch + 1):
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.rows))
            starts = epoch * of_epoch + np.cumsum(lengths[order]) - lengths[order]
            first, last = np.searchsorted(starts, [begin, end])
            found += [self.rows[i] for i in order[first:last]]
        return found

    @property
    def digest(self) -> str:
        """Hash of the rows, which a round's manifest pins."""
        return digest_of(self.rows)


class MixedData:
    """The rows of `sft_files`, read again when files or settings change."""

    def __init__(self, model: Path, open_renderer: OpenRenderer | None) -> None:
        self.model = model
        self.open_renderer = open_renderer
        self._known: tuple[object, MixedRows] | None = None

    def rows(self, config: TrainerConfig) -> MixedRows | None:
        """The rows that the settings mix in, or None. Raises `TrainerUsageError` where data is invalid or too long."""
        if not config.sft_files:
            return None
        key = (config.sft_files, config.sft_tokens, config.sft_seed, *map(_stamp, config.sft_files))
        if self._known is None or self._known[0] != key:
            self._known = key, self._read(config)
        return self._known[1]

    def figures(self, config: TrainerConfig) -> dict[str, int]:
        """Metrics of the rows: their number, and how many were dropped; none where nothing is mixed in."""
        mixed = self.rows(config)
        return {} if mixed is None else {"sft_rows": len(mixed.rows), "sft_too_long": mixed.num_too_long}

    def of_round(
        self, claimed: ClaimedRound, config: TrainerConfig, first_step: int, num_samples: int
    ) -> list[list[SupervisedRow]]:
        """The rows for each step that a round of `num_samples` samples takes.

        Raises `RoundError` where the data has changed since the claim.
        """
        mixed = self.rows(config)
        if mixed is None:
            return []
        if mixed.digest != claimed.mixed_rows:
            raise RoundError(
                f"the rows of {', '.join(config.sft_files)} are not those that round {claimed.round} was claimed with: "
                "a file, the tokenizer or the renderer has changed; restore it"
            )
        num_steps = config.epochs * min(config.optimizer_steps, num_samples)
        return [mixed.of_step(first_step + i) for i in range(num_steps)]

    def _read(self, config: TrainerConfig) -> MixedRows:
        maker = RowMaker(self.model, self.open_renderer, config.sft_tokens)
        rows = [row for file in config.sft_files for line in read_data(Path(file)) for row in maker.rows(line)]
        if not rows:
            raise TrainerUsageError(
                f"no row is left to mix in: {maker.num_too_long} conversations of {', '.join(config.sft_files)} have "
                f"more than sft_tokens = {config.sft_tokens} tokens; raise it"
            )
        return MixedRows(
            rows=rows,
            tokens_per_step=config.sft_tokens,
            seed=config.sft_seed,
            num_too_long=maker.num_too_long,
        )


def _stamp(file: str) -> tuple[int, int]:
    try:
        status = Path(file).stat()
    except OSError as error:
        raise TrainerUsageError(f"cannot read the data file {file} of sft_files: {error.strerror}") from error
    return status.st_mtime_ns, status.st_size
