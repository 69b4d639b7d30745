"""Context parallelism: neighbouring ranks share the tokens of every row, so that a long sequence fits several devices.

A row is cut into 2c chunks for c ranks, and rank r holds chunks r and 2c - 1 - r, so that causal attention costs all of
them about the same (zigzag, as Megatron-core divides sequences). Keys and values of the whole row are gathered in each
layer, as in Llama 3's training (arXiv 2407.21783, section 3.3.2): with few key heads they are small beside the queries.

Invariant: every rank of a group gets the same rows and ends with the numbers of all their targets, so that losses over
whole sequences need no further exchange; its backward pass adds the gradient of its own tokens and targets only.
Gradients of keys and values are summed over the ranks in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from weir.trainer.model.batching import Batch
from weir.trainer.model.ops.segment_attention import Piece, SegmentRow

# torch 2.13 renamed them.
_gather_into: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_into: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPart:
    """What a rank computes of a batch with N targets: its t tokens, and the n targets that they predict."""

    batch: Batch
    owned: torch.Tensor  # (n,) int64, which of the N targets these are
    count: int  # N
    group: Any

    def own(self, values: torch.Tensor) -> torch.Tensor:
        """Of the numbers (N,) of all targets this rank's (n,)."""
        return values[self.owned]

    def of_all(self, values: torch.Tensor) -> torch.Tensor:
        """The numbers (N, …) of all targets from each rank's (n, …); a collective operation."""
        found: torch.Tensor = _OfAllTargets.apply(values, self.owned, self.count, self.group)  # type: ignore[no-untyped-call]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePart:
    """A batch that one rank computes alone."""

    batch: Batch

    def own(self, values: torch.Tensor) -> torch.Tensor:
        """The numbers of all targets."""
        return values

    of_all = own


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRanks:
    """This process's rank among the `count` that share each row, and their process group."""

    rank: int
    count: int
    group: Any

    def part(self, batch: Batch) -> OwnPart:
        """This rank's part of a batch of one row."""
        assert batch.segments is not None
        length = batch.ids.shape[1]
        width = -(-length // (2 * self.count))  # of a chunk
        chunks = (self.rank, 2 * self.count - 1 - self.rank)
        added = 2 * self.count * width - length
        held = torch.cat([torch.arange(chunk * width, (chunk + 1) * width) for chunk in chunks]).to(batch.ids.device)
        ids, positions, often = (F.pad(row, (0, added)) for row in (batch.ids, batch.positions, batch.often))
        chunk_of = batch.predictors // width
        is_first = chunk_of == chunks[0]
        owned = torch.nonzero(is_first | (chunk_of == chunks[1]))[:, 0]
        offsets = torch.where(is_first[owned], chunks[0] * width, (chunks[1] - 1) * width)
        own = replace(
            batch,
            ids=ids[:, held],
            positions=positions[:, held],
            segments=self._row(batch.segments, width, chunks, added),
            predictors=batch.predictors[owned] - offsets,
            targets=batch.targets[owned],
            often=often[:, held],
            experts=self._own_experts(batch.experts, held, added),
        )
        return OwnPart(batch=own, owned=owned, count=len(batch.targets), group=self.group)

    def _own_experts(self, experts: torch.Tensor | None, held: torch.Tensor, added: int) -> torch.Tensor | None:
        return None if experts is None else F.pad(experts, (0, 0, 0, added))[:, held]

    def whole(self, keys_and_values: torch.Tensor) -> torch.Tensor:
        """(2, H, T, D) keys and values of the whole row from each rank's (2, H, t, D); a collective operation."""
        found: torch.Tensor = _OfAllTokens.apply(keys_and_values, self.count, self.group)  # type: ignore[no-untyped-call]
        return found

    def _row(self, row: SegmentRow, width: int, chunks: tuple[int, int], added: int) -> SegmentRow:
        """The row with its padding, of which this rank computes its chunks."""
        lengths, paths = list(row.lengths), list(row.paths)
        if added:
            paths.append([len(lengths)])
            lengths.append(added)
        pieces = []
        for chunk in chunks:
            start = 0
            for index, length in enumerate(lengths):
                first, end = max(start, chunk * width), min(start + length, (chunk + 1) * width)
                if first < end:
                    pieces.append(Piece(segment=index, queries=end - first, seen=end - start))
                start += length
        return SegmentRow(lengths=lengths, paths=paths, pieces=pieces, whole=self.whole)


def part_of(batch: Batch, context: ContextRanks | None) -> OwnPart | WholePart:
    """What this process computes of a batch: everything where no ranks share its tokens."""
    return WholePart(batch=batch) if context is None else context.part(batch)


class _OfAllTokens(torch.autograd.Function):
    """Every rank's two chunks, in the order of the row; backward, the sum of all ranks' gradients of its own."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, count: int, group: Any) -> torch.Tensor:
        ctx.count, ctx.group, ctx.shape = count, group, own.shape
        kinds, heads, tokens, size = own.shape
        gathered = own.new_empty(count, kinds, heads, 2, tokens // 2, size)
        _gather_into(gathered.view(count * kinds, heads, tokens, size), own.contiguous(), group=group)
        chunks = torch.cat([gathered[:, :, :, 0], gathered[:, :, :, 1].flip(0)])  # 2c, as the row has them
        return chunks.permute(1, 2, 0, 3, 4).reshape(kinds, heads, count * tokens, size)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        kinds, heads, tokens, size = ctx.shape
        chunks = gradient.reshape(kinds, heads, 2 * ctx.count, tokens // 2, size).permute(2, 0, 1, 3, 4)
        ordered = torch.stack([chunks[: ctx.count], chunks[ctx.count :].flip(0)], dim=3).float()
        own = ordered.new_empty(kinds, heads, tokens, size)
        given = ordered.reshape(ctx.count * kinds, heads, tokens, size)
        _reduce_into(own, given, group=ctx.group)
        return own.to(gradient.dtype), None, None


class _OfAllTargets(torch.autograd.Function):
    """Numbers of targets, each from the rank that owns it. All ranks compute the same loss from them, so the gradient
    by a rank's own numbers is complete on that rank."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, owned: torch.Tensor, count: int, group: Any) -> torch.Tensor:
        ctx.save_for_backward(owned)
        found = own.new_zeros(count, *own.shape[1:])
        found[owned] = own
        dist.all_reduce(found, group=group)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (owned,) = ctx.saved_tensors
        return gradient[owned], None, None, None
