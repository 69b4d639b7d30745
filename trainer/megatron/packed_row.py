"""One packed row (thd) of sequences, of which each rank of a context-parallel group holds its part of every sequence.

A sequence is cut into 2c chunks for c ranks, and rank r holds chunks r and 2c - 1 - r, so that causal attention costs
all ranks the same (zigzag). Invariant: padding follows the real tokens of a sequence, so that none attends to it, and
the N targets of the row are numbered as in `batching.lay_out`, sequence by sequence, whoever holds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from weir.trainer.model.batching import Tokens, laid_experts

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRow:
    """What one rank computes of a row of T tokens, and where the row's N targets lie."""

    ids: torch.Tensor  # (1, T / ranks) int64, this rank's
    positions: torch.Tensor  # (T / ranks,) int64, of its tokens in their sequences
    lengths: list[int]  # of the padded sequences, whose sum is T
    places: torch.Tensor  # (T,) int64: where a token lies among all ranks' tokens, one rank after the other
    predictors: torch.Tensor  # (n,) int64: this rank's tokens that predict targets
    owned: torch.Tensor  # (n,) int64: which of the N targets they predict
    targets: torch.Tensor  # (N,) int64
    often: torch.Tensor  # (T / ranks,) int64: 1 for this rank's tokens, 0 for padding and a row that does not count
    num_tokens: int  # without padding
    experts: torch.Tensor | None = None  # (T / ranks, layers × chosen) int32, to replay; None: routers choose


def pack(
    sequences: Sequence[Tokens],
    device: torch.device,
    *,
    ranks: int,
    rank: int,
    tensor: int = 1,
    multiple: int = 1,
    length: int = 0,
    counts: bool = True,
    routed: bool = False,
) -> PackedRow:
    """The part of rank `rank` of `ranks`, whose tokens `tensor` ranks can divide, each into `multiple`s. The last
    token is no input.

    The row is padded to `length` tokens, which another row has, where it is shorter. Without `counts` it repeats one
    that another pass counts. With `routed` the sequences' experts are replayed.
    """
    inputs = [sequence.ids[:-1] for sequence in sequences]
    lengths = _padded([len(ids) for ids in inputs], ranks, tensor * multiple)
    lengths[-1] += max(0, length - sum(lengths))
    starts = np.cumsum([0, *lengths[:-1]])
    row, often = np.zeros((2, sum(lengths)), dtype=np.int64)
    laid = [np.arange(start, start + len(ids)) for start, ids in zip(starts, inputs, strict=True)]
    for at, ids in zip(laid, inputs, strict=True):
        row[at] = ids
        often[at] = counts
    held = [_held(lengths, ranks, of) for of in range(ranks)]
    places = np.empty(len(row), dtype=np.int64)
    places[np.concatenate(held)] = np.arange(len(row))
    masks = [sequence.targets[1:] for sequence in sequences]
    predicting = np.concatenate([start + np.flatnonzero(mask) for start, mask in zip(starts, masks, strict=True)])
    targets = np.concatenate([sequence.ids[1:][mask] for sequence, mask in zip(sequences, masks, strict=True)])
    positions = np.concatenate([np.arange(length) for length in lengths])
    width = len(row) // ranks
    own = np.flatnonzero(places[predicting] // width == rank)
    return PackedRow(
        ids=_tensor(row[held[rank]], device)[None],
        positions=_tensor(positions[held[rank]], device),
        lengths=lengths,
        places=_tensor(places, device),
        predictors=_tensor(places[predicting[own]] % width, device),
        owned=_tensor(own, device),
        targets=_tensor(targets, device),
        often=_tensor(often[held[rank]], device),
        num_tokens=sum(map(len, inputs)),
        experts=laid_experts(sequences, laid, row.shape, device)[held[rank]] if routed else None,
    )


def _padded(lengths: Sequence[int], ranks: int, tensor: int) -> list[int]:
    """Every length in whole chunks, the last one so that each rank's tokens can be divided once more."""
    chunks = 2 * ranks if ranks > 1 else 1
    found = [-(-length // chunks) * chunks for length in lengths]
    found[-1] += -sum(found) % math.lcm(chunks, ranks * tensor)
    return found


def _held(lengths: Sequence[int], ranks: int, rank: int) -> Places:
    """The tokens of the row that a rank holds."""
    parts, start = [], 0
    for length in lengths:
        if ranks == 1:
            parts.append(np.arange(start, start + length))
        else:
            chunk = length // (2 * ranks)
            for at in (rank, 2 * ranks - 1 - rank):
                parts.append(np.arange(start + at * chunk, start + (at + 1) * chunk))
        start += length
    return np.concatenate(parts)


def _tensor(values: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.int64)).to(device)
