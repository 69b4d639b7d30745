"""Keeps what a round did with its calls and tokens, for those who look at them (`trainer.keep_tokens`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weir.store.config import StoreConfig
from weir.store.parquet.round_tokens import RoundCall, round_tokens_file, share_round_tokens, write_round_tokens
from weir.trainer.rounds.prepare import RoundData
from weir.trainer.settings.config import TrainerConfig

if TYPE_CHECKING:  # torch is imported with the first backend
    from weir.trainer.learner.step_stats import StepStats


def keep_tokens(
    store: StoreConfig, round_id: int, data: RoundData, steps: Sequence[StepStats], config: TrainerConfig
) -> None:
    """Write the file of a round, and share it where the store is shared, unless the settings keep nothing.

    Raises OSError and StoreUnavailable. A backend other than Weir's own gives no traces; then calls have their
    advantage only.
    """
    if config.keep_tokens == "none":
        return
    traces = {trace.call_id: trace for step in steps for trace in step.traces}
    taken = [
        RoundCall(call_id=sample.call_id, advantage=sample.advantage, trace=traces.get(sample.call_id))
        for sample in data.samples
    ]
    left_out = [RoundCall(call_id=call_id, left_out=why.value) for call_id, why in data.left_out.items()]
    write_round_tokens(round_tokens_file(store.folder, round_id), [*taken, *left_out])
    share_round_tokens(store, round_id)
