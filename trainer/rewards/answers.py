"""The input of a reward source, a call's answer with the task of its group, and its result.

Invariant: for each answer a source returns a number, or the reason why there will never be one, or nothing, which is an
outage to be fixed and never counts as a reward.
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
from weir.trainer.rewards.write_batching import BatchedWriter
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.skip import Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A finished call: the argument of reward functions.

    Attributes:
        call: The recorded call, with token ids, logprobs and session.
        task: The task of its group; None where the group has no kernel task.
    """

    call: StoredCall
    task: KernelTask | None

    @property
    def text(self) -> str:
        """The model's answer as text."""
        return self.call.answer_text

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the request, in OpenAI's form."""
        return self.call.messages


@dataclass(slots=True)
class SourceResult:
    """The result of one source, by call."""

    values: dict[str, float] = field(default_factory=dict)
    without: dict[str, Skip] = field(default_factory=dict)  # why a call will never have a reward
    evaluations: dict[str, EvaluationRow] = field(default_factory=dict)
    outages: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeContext:
    """The state that all sources of one judging share."""

    catalog: Catalog
    config: TrainerConfig
    round_id: int | None  # None: prejudging, before any round claims the groups
    slots: asyncio.Semaphore
    on_value: Callable[[], None]
    verdicts: BatchedWriter[EvaluationRow]
    rewards: BatchedWriter[RewardRow]
    wanted: Callable[[], bool]  # whether further requests may be sent

    def may_ask(self, given: SourceResult) -> bool:
        """Whether to send a source another request: the next start sends those that are left out now."""
        return not given.outages and self.wanted()


# Called by a source with the answers that just got their values, so that values are stored as they arrive.
OnResult = Callable[[Sequence[Answer]], Awaitable[None]]


def content_hash(*parts: object) -> str:
    """sha256 of everything that a reward depends on."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
