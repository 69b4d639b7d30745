"""Splits sequences into micro-batches under a token budget: packed into one row, with shared prefixes, or padded.

Invariant: splitting, order, packing and sharing never change a gradient beyond rounding. A packed token attends to its
own sequence only, padding follows every real token, and each target of each sequence is a separate term of the loss,
also where sequences share it. Sequences share a prefix only where they share its experts, if these are replayed.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from xxhash import xxh3_64_intdigest

from weir.store.records.call_record import Experts, TokenIds
from weir.trainer.model.ops.prefix_tree import PrefixForest, flat_forest, prefix_forest, prefix_order, shared_lengths
from weir.trainer.model.ops.segment_attention import SegmentRow


class Layout(enum.Enum):
    """How the sequences of a micro-batch are laid out."""

    TREE = "tree"  # one row that holds a shared prefix once
    PACKED = "packed"  # one row of whole sequences
    PADDED = "padded"  # one row per sequence, for models whose layers carry a state along the row


class Tokens(Protocol):
    """A training sequence: token ids and which of them are targets, both of shape (T,)."""

    @property
    def ids(self) -> npt.NDArray[np.int32]: ...

    @property
    def targets(self) -> npt.NDArray[np.bool_]: ...


SequenceT = TypeVar("SequenceT", bound=Tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The inputs of one forward pass, and the hidden states that predict the N targets, sequence by sequence.

    The last token of a sequence predicts nothing and is not an input; its first token is never a target.
    """

    ids: torch.Tensor  # (B, T) int64
    positions: torch.Tensor  # (B, T) int64
    segments: SegmentRow | None  # of a packed row, where B is 1
    predictors: torch.Tensor  # (N,) int64, indices into B × T
    targets: torch.Tensor  # (N,) int64, the token ids that they predict
    often: torch.Tensor  # (B, T) int64, how many sequences have each token; 0: padding, or a batch that does not count
    experts: torch.Tensor | None = None  # (B, T, layers × chosen) int32: those to replay; None: routers choose

    @property
    def num_tokens(self) -> int:
        """Number of computed tokens, padding included."""
        return self.ids.numel()

    def without_targets(self) -> Batch:
        """The same inputs, of which nothing is predicted: a pass ends before the head."""
        return replace(self, predictors=self.predictors[:0], targets=self.targets[:0])


def micro_batches(
    sequences: Sequence[SequenceT], token_budget: int, layout: Layout, *, routed: bool = False
) -> list[list[SequenceT]]:
    """Split sequences so that each batch computes at most `token_budget` tokens; a longer sequence is its own batch.

    Sequences for packed rows are sorted by their tokens, so that common prefixes meet; others by length. With `routed`
    their experts are replayed.
    """
    inputs = _labels(sequences) if routed else [sequence.ids[:-1] for sequence in sequences]
    if layout is Layout.PADDED:
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
    else:
        order = prefix_order(inputs)
    ordered = [inputs[i] for i in order]
    shared = shared_lengths(ordered) if layout is Layout.TREE else [0] * len(order)
    batches: list[list[SequenceT]] = []
    cost = 0
    for index, ids, known in zip(order, ordered, shared, strict=True):
        rows = len(batches[-1]) + 1 if batches else 1
        cost = rows * len(ids) if layout is Layout.PADDED else cost + len(ids) - known
        if batches and cost <= token_budget:
            batches[-1].append(sequences[index])
        else:
            batches.append([sequences[index]])
            cost = len(ids)
    return batches


def lay_out(
    sequences: Sequence[Tokens], layout: Layout, device: torch.device, *, counts: bool = True, routed: bool = False
) -> Batch:
    """One batch of the sequences; its targets are in the order of the sequences.

    Without `counts` it repeats a batch that another pass counts. With `routed` it holds the sequences' experts.
    """
    inputs = [sequence.ids[:-1] for sequence in sequences]
    targets = [sequence.targets[1:] for sequence in sequences]  # position t predicts token t + 1
    ids = np.concatenate([sequence.ids[1:][mask] for sequence, mask in zip(sequences, targets, strict=True)])
    if layout is Layout.PADDED:
        rows, positions, places = _padded(inputs)
        segments = None
    else:
        labels = _labels(sequences) if routed and layout is Layout.TREE else inputs
        forest = prefix_forest(labels) if layout is Layout.TREE else flat_forest(inputs)
        rows, positions, places = _row(forest, inputs)
        segments = SegmentRow.of(forest.segments)
    predictors = np.concatenate([place[mask] for place, mask in zip(places, targets, strict=True)])
    often = np.bincount(np.concatenate(places), minlength=rows.size).reshape(rows.shape) * counts
    return Batch(
        ids=_tensor(rows, device),
        positions=_tensor(positions, device),
        segments=segments,
        predictors=_tensor(predictors, device),
        targets=_tensor(ids, device),
        often=_tensor(often, device),
        experts=laid_experts(sequences, places, rows.shape, device) if routed else None,
    )


def _experts_of(sequence: Tokens) -> Experts:
    """The experts of a sequence's inputs, (T - 1, layers × chosen)."""
    found: Experts | None = getattr(sequence, "routed_experts", None)
    assert found is not None and len(found) == len(sequence.ids) - 1, "samples without experts are not replayed"
    return found


def _labels(sequences: Sequence[Tokens]) -> list[TokenIds]:
    """Numbers of the sequences' inputs that are equal where token and experts are, by their hashes."""
    hashes, lengths = [], []
    for sequence in sequences:
        experts = _experts_of(sequence).astype("<u2").view(np.uint8)
        rows = np.concatenate([sequence.ids[:-1, None].astype("<u4").view(np.uint8), experts], axis=1)
        data, width = rows.tobytes(), rows.shape[1]
        hashes += [xxh3_64_intdigest(data[at : at + width]) for at in range(0, len(data), width)]
        lengths.append(len(rows))
    numbers = np.unique(np.array(hashes, np.uint64), return_inverse=True)[1].astype(np.int32)
    return np.split(numbers, np.cumsum(lengths)[:-1])


def laid_experts(
    sequences: Sequence[Tokens],
    places: Sequence[npt.NDArray[np.int64]],
    shape: tuple[int, ...],
    device: torch.device,
) -> torch.Tensor:
    """Each token's experts at its place, `shape` × (layers × chosen) int32; padding has those of the first."""
    found = [_experts_of(sequence) for sequence in sequences]
    width = found[0].shape[1]
    laid = np.tile(found[0][0].astype(np.int32), (*shape, 1)).reshape(-1, width)
    for place, experts in zip(places, found, strict=True):
        laid[place] = experts
    return torch.from_numpy(laid.reshape(*shape, width)).to(device)


Laid = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]


def _row(forest: PrefixForest, inputs: Sequence[TokenIds]) -> Laid:
    row = np.empty(forest.num_tokens, np.int64)
    for place, ids in zip(forest.places, inputs, strict=True):
        row[place] = ids
    starts = [np.arange(segment.start, segment.start + len(segment.ids)) for segment in forest.segments]
    return row[None], np.concatenate(starts)[None], forest.places


def _padded(inputs: Sequence[TokenIds]) -> Laid:
    longest = max(len(ids) for ids in inputs)
    rows = np.zeros((len(inputs), longest), dtype=np.int64)
    for row, ids in zip(rows, inputs, strict=True):
        row[: len(ids)] = ids
    positions = np.broadcast_to(np.arange(longest), rows.shape)
    return rows, positions, [row * longest + np.arange(len(ids)) for row, ids in enumerate(inputs)]


def _tensor(values: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.int64)).to(device, non_blocking=True)  # waits for no pass before
