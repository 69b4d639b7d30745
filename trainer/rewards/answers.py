"""What rewards are given for: a call's answer, with the task of its group; and what a source of rewards gives back.

Invariant: a source says for each answer either a number, or why there never will be one, or nothing, which is an outage
to be mended: an outage is never a reward. Not here: the sources.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weir.kernel_eval.client import KernelTask
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import EvaluationRow, RewardRow
from weir.store.reader import StoredCall
from weir.trainer.rewards.write_batching import Keeping
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.skip import Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A call that ended by itself. Functions that give rewards get one, and read what they need."""

    call: StoredCall
    task: KernelTask | None

    @property
    def text(self) -> str:
        """What the model answered."""
        return self.call.answer_text

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What it was asked."""
        return self.call.messages


@dataclass(slots=True)
class Given:
    """What one source gave, by call."""

    values: dict[str, float] = field(default_factory=dict)
    without: dict[str, Skip] = field(default_factory=dict)  # why a call will never have one
    evaluations: dict[str, EvaluationRow] = field(default_factory=dict)
    outages: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What all sources of one judging share."""

    catalog: Catalog
    config: TrainerConfig
    round_id: int | None  # None: ahead of any round
    slots: asyncio.Semaphore
    on_value: Callable[[], None]
    verdicts: Keeping[EvaluationRow]
    rewards: Keeping[RewardRow]
    wanted: Callable[[], bool]  # whether more answers are to be asked about

    def goes_on(self, given: Given) -> bool:
        """Whether a source is asked about another answer: what is not asked now is asked next time."""
        return not given.outages and self.wanted()


# Told by a source which answers it has just given a value, so that values are kept as they come.
OnGiven = Callable[[Sequence[Answer]], Awaitable[None]]


def content_hash(*parts: object) -> str:
    """sha256 of all that a reward depends on."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
