"""Supervised rows that rounds mix into their optimiser steps: which rows belong to which step of all rounds.

Invariant: a pure function of the rows, the seed and the number of the step, which is kept with the optimiser's state;
so a round that is continued or repeated mixes in what it did, and one that goes back to an earlier version goes back in
the data too. Rows stand on one line without end, epoch after epoch in another order; step k has those that begin in
[k, k + 1) times the tokens of a step. A row is at most that long, so every step has one. Not here: the loss.
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
    num_too_long: int = 0  # rows that were left out

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
        """What a round's manifest pins."""
        return digest_of(self.rows)


class MixedData:
    """The files of the settings as rows, read again when they change."""

    def __init__(self, model: Path, open_renderer: OpenRenderer | None) -> None:
        self.model = model
        self.open_renderer = open_renderer
        self._known: tuple[object, MixedRows] | None = None

    def rows(self, config: TrainerConfig) -> MixedRows | None:
        """What the settings mix in; None where that is nothing. Raises `TrainerUsageError` for data that is no use."""
        if not config.sft_files:
            return None
        key = (config.sft_files, config.sft_tokens, config.sft_seed, *map(_stamp, config.sft_files))
        if self._known is None or self._known[0] != key:
            self._known = key, self._read(config)
        return self._known[1]

    def figures(self, config: TrainerConfig) -> dict[str, int]:
        """What a round says of the rows: how many there are, and how many were left out; nothing without any."""
        mixed = self.rows(config)
        return {} if mixed is None else {"sft_rows": len(mixed.rows), "sft_too_long": mixed.num_too_long}

    def of_round(
        self, claimed: ClaimedRound, config: TrainerConfig, first_step: int, num_samples: int
    ) -> list[list[SupervisedRow]]:
        """The rows for each step that a round of so many samples may take.

        Raises `RoundError` where they are other data by now.
        """
        mixed = self.rows(config)
        if mixed is None:
            return []
        if mixed.digest != claimed.mixed_rows:
            raise RoundError(
                f"the rows of {', '.join(config.sft_files)} are not those that round {claimed.round} was claimed with: "
                "a file, the tokenizer or the renderer has changed; put back what was there"
            )
        return [mixed.of_step(first_step + i) for i in range(min(config.optimizer_steps, num_samples))]

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
