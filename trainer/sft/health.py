"""Figures that tell whether supervised data is what its maker believes: targets, lengths, losses by epoch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.data.rows import RowMaker


@dataclass(frozen=True, slots=True, kw_only=True)
class SftHealth:
    """Figures of the rows that are trained on, and of what became of the lines."""

    valid_token_share: float  # target tokens over all tokens
    num_tokens: int  # of one epoch
    length_min: int  # tokens of a row
    length_median: float
    length_p95: float
    length_max: int
    targets_median: float  # target tokens of a row
    rows_too_long: int  # dropped
    texts_cut: int  # texts of which several rows were made
    rows_exact: int  # of recorded token ids
    rows_rendered_again: int  # with recorded ids of another vocabulary
    epoch_losses: list[float]  # in nats per target token, as the steps met the rows


def health(
    rows: Sequence[SupervisedRow], maker: RowMaker, batches: Sequence[Sequence[SupervisedRow]], losses: Sequence[float]
) -> SftHealth:
    """The figures of a run: its rows, and the batch and the loss of each step."""
    lengths = np.asarray([len(row.ids) for row in rows])
    targets = np.asarray([row.num_targets for row in rows])
    return SftHealth(
        valid_token_share=float(targets.sum() / lengths.sum()),
        num_tokens=int(lengths.sum()),
        length_min=int(lengths.min()),
        length_median=float(np.median(lengths)),
        length_p95=float(np.percentile(lengths, 95)),
        length_max=int(lengths.max()),
        targets_median=float(np.median(targets)),
        rows_too_long=maker.num_too_long,
        texts_cut=maker.num_texts_cut,
        rows_exact=maker.num_exact,
        rows_rendered_again=maker.num_rendered_again,
        epoch_losses=_by_epoch(batches, losses, int(targets.sum())),
    )


def _by_epoch(
    batches: Sequence[Sequence[SupervisedRow]], losses: Sequence[float], targets_per_epoch: int
) -> list[float]:
    """The mean loss of each epoch's targets."""
    sums: list[float] = []
    seen = 0
    for batch, loss in zip(batches, losses, strict=True):
        count = sum(row.num_targets for row in batch)
        if seen % targets_per_epoch == 0:
            sums.append(0.0)
        sums[-1] += loss * count
        seen += count
    return [total / targets_per_epoch for total in sums]
