"""Forward and backward passes of micro-batches through the stages of a pipeline, by Megatron-core's schedules.

Invariant: gradients add up over all passes until `MegatronStepper.clip` sums them over ranks, once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func

from weir.trainer.megatron.architecture import Architecture
from weir.trainer.megatron.packed_model import PackedChunks, PackedCritic, compute
from weir.trainer.megatron.packed_row import PackedRow, pack
from weir.trainer.megatron.vocab_logprobs import VocabularyPart, vocab_logprobs, whole_logits
from weir.trainer.model.batching import Tokens
from weir.trainer.model.token_model import TargetLogprobs
from weir.trainer.settings.megatron import MegatronSettings

SequenceT = TypeVar("SequenceT", bound=Tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOutput(Generic[SequenceT]):
    """What the last stage knows of a micro-batch."""

    sequences: Sequence[SequenceT]
    counts: bool  # whether the micro-batch is this copy's, or only keeps it in step with the others
    row: PackedRow
    hidden: torch.Tensor  # (t, H), of this rank's tokens


LossOf = Callable[[RowOutput[Any]], tuple[torch.Tensor, Any]]


class Passes:
    """Runs micro-batches through a model. `wrapped` are its parts with their gradients' buffers."""

    def __init__(
        self,
        network: PackedChunks,
        wrapped: Sequence[Any],
        model: Architecture,
        layout: MegatronSettings,
        device: torch.device,
    ) -> None:
        self.network = network.last
        self.model = model
        self.layout = layout
        self.device = device
        self._wrapped = wrapped
        if parallel_state.is_pipeline_last_stage() and not isinstance(self.network, PackedCritic):
            self._part = VocabularyPart.of(
                model.vocabulary,
                len(self.network.head),
                parallel_state.get_tensor_model_parallel_rank(),
                parallel_state.get_tensor_model_parallel_group(),
            )

    def run(
        self,
        parts: Sequence[tuple[Sequence[SequenceT], bool]],
        loss_of: LossOf,
        *,
        backward: bool,
        routed: bool = False,
    ) -> list[Any]:
        """The results of `loss_of` by micro-batch, on the last stage; it also returns the loss to differentiate.

        With `routed` the sequences' experts are replayed.
        """
        laid = self._laid(parts, routed)

        def step(rows: Iterator[Any], module: Any) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
            sequences, counts, row = next(rows)

            def loss(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
                output = RowOutput(sequences=sequences, counts=counts, row=row, hidden=hidden)
                value, result = loss_of(output)
                return value, torch.zeros((), dtype=torch.int, device=self.device), result

            return compute(module, row), loss

        found: list[Any] = get_forward_backward_func()(
            forward_step_func=step,
            data_iterator=iter(laid) if len(self._wrapped) == 1 else [iter(laid) for _ in self._wrapped],
            model=list(self._wrapped),
            num_microbatches=len(laid),
            seq_length=self.model.context,  # rows differ in length; stages tell each other
            micro_batch_size=1,
            forward_only=not backward,
        )
        return found

    def _laid(
        self, parts: Sequence[tuple[Sequence[SequenceT], bool]], routed: bool
    ) -> list[tuple[Sequence[SequenceT], bool, PackedRow]]:
        """The micro-batches with their rows.

        Where stages are interleaved, there are as many as full turns take, the further ones of which do not count, and
        all rows are equally long: with two stages Megatron-core mixes up the lengths that they tell each other. It
        also takes two turns there, since one hangs: the first stage is then done with its rows before it tells lengths
        of gradients, for which the second one waits.
        """
        if self.layout.chunks == 1:
            return [
                (sequences, counts, self._row(sequences, counts=counts, routed=routed)) for sequences, counts in parts
            ]
        stages = self.layout.pipeline
        turns = max(-(-len(parts) // stages), 2 if stages == 2 else 1)
        filled = [*parts, *[(parts[0][0], False)] * (turns * stages - len(parts))]
        longest = max(sum(self._row(sequences).lengths) for sequences, _ in filled)
        return [(sequences, counts, self._row(sequences, longest, counts, routed)) for sequences, counts in filled]

    def logprobs(self, output: RowOutput[Any], temperatures: torch.Tensor) -> TargetLogprobs:
        """Logprobs and entropies of the row's N targets, whichever ranks hold them; `temperatures` is (N,)."""
        row = output.row
        logprobs, entropy = vocab_logprobs(
            output.hidden[row.predictors],
            self.network.head,
            row.targets[row.owned],
            temperatures[row.owned],
            self._part,
        )
        if self.layout.context == 1:
            return TargetLogprobs(logprobs, entropy)
        both: torch.Tensor = _OfAllRanks.apply(  # type: ignore[no-untyped-call]
            torch.stack([logprobs, entropy], dim=1), row.owned, len(row.targets)
        )
        return TargetLogprobs(both[:, 0], both[:, 1])

    def values(self, output: RowOutput[Any]) -> torch.Tensor:
        """A critic's values of the states before the row's N targets, (N,), whichever ranks hold them."""
        row = output.row
        values: torch.Tensor = self.network.value_head(output.hidden[row.predictors]).float()
        if self.layout.context > 1:
            values = _OfAllRanks.apply(values, row.owned, len(row.targets))  # type: ignore[no-untyped-call]
        return values[:, 0]

    def logits(self, output: RowOutput[Any]) -> Callable[[slice], torch.Tensor]:
        """The logits over the whole vocabulary of some of the row's N targets, without gradient."""
        hidden = output.hidden[output.row.predictors]
        if self.layout.context > 1:
            hidden = _OfAllRanks.apply(hidden, output.row.owned, len(output.row.targets))  # type: ignore[no-untyped-call]
        return lambda rows: whole_logits(hidden[rows], self.network.head, self._part, self.model.vocabulary)

    def _row(
        self, sequences: Sequence[Tokens], length: int = 0, counts: bool = True, routed: bool = False
    ) -> PackedRow:
        return pack(
            sequences,
            self.device,
            ranks=self.layout.context,
            rank=parallel_state.get_context_parallel_rank(),
            tensor=self.layout.tensor,
            multiple=self.layout.token_multiple,
            length=length,
            counts=counts,
            routed=routed,
        )


class _OfAllRanks(torch.autograd.Function):
    """Values of a row's targets, each from the rank that owns it. Every rank computes the same loss from them, so the
    gradient by a rank's own values is complete on that rank."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, owned: torch.Tensor, count: int) -> torch.Tensor:
        ctx.save_for_backward(owned)
        found = values.new_zeros(count, values.shape[1])
        found[owned] = values
        dist.all_reduce(found, group=parallel_state.get_context_parallel_group())
        return found

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (owned,) = ctx.saved_tensors
        return gradient[owned], None, None
