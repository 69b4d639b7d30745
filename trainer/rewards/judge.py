"""Judges answers: gets every named reward of every answer, from all sources concurrently.

Invariant: an outage of a source is never a reward. Rewards are stored as they arrive and looked up first, so that a
resumed round asks only for the missing ones. An answer that lacks one of its rewards, or has one that is not finite, is
excluded and counted under the reason.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rewards import rewards_of
from weir.store.catalog.rows import EvaluationRow, RewardRow
from weir.trainer.errors import JudgeUnavailable
from weir.trainer.rewards.answers import Answer, JudgeContext, SourceResult, content_hash
from weir.trainer.rewards.function import function_rewards
from weir.trainer.rewards.kernel import kernel_rewards
from weir.trainer.rewards.reward_model import http_rewards
from weir.trainer.rewards.stored import StoredRewards, stored_rewards
from weir.trainer.rewards.write_batching import BatchedWriter
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.reward_terms import KERNEL_EVAL, RewardTerm, is_complete
from weir.trainer.skip import Skip

SOURCE = "trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Rewards and verdicts of the answers, by call."""

    rewards: dict[str, dict[str, float]]  # call → reward → value, for calls with all rewards
    without: dict[str, Skip]  # why the other calls have none
    evaluations: dict[str, EvaluationRow]
    seconds: float


def judge(
    answers: Sequence[Answer],
    stored: StoredRewards,
    catalog: Catalog,
    config: TrainerConfig,
    *,
    round_id: int | None,
    on_value: Callable[[], None] = lambda: None,
) -> Judged:
    """All rewards of the answers; missing ones are requested from their sources and stored.

    Raises `JudgeUnavailable` after an outage of any source; the rewards that did arrive are stored.
    """
    started = time.monotonic()
    given = asyncio.run(ask_all(answers, stored, catalog, config, round_id=round_id, on_value=on_value))
    if outages := [outage for one in given.values() for outage in one.outages]:
        raise JudgeUnavailable(
            f"not every answer could be judged: {outages[0]}; the round stays open, run `weir round` again then"
        )
    return judged_of(answers, given, config, time.monotonic() - started)


async def ask_all(
    answers: Sequence[Answer],
    stored: StoredRewards,
    catalog: Catalog,
    config: TrainerConfig,
    *,
    round_id: int | None,
    on_value: Callable[[], None] = lambda: None,
    wanted: Callable[[], bool] = lambda: True,
) -> dict[str, SourceResult]:
    """The results of all sources, by reward; no further requests are sent once `wanted` returns False."""
    context = JudgeContext(
        catalog=catalog,
        config=config,
        round_id=round_id,
        slots=asyncio.Semaphore(config.judge_concurrency),
        on_value=on_value,
        verdicts=BatchedWriter(catalog.add_evaluations),
        rewards=BatchedWriter(catalog.add_rewards),
        wanted=wanted,
    )

    async def ask(name: str, term: RewardTerm) -> SourceResult:
        if term.source == "kernel_eval":
            return await kernel_rewards(answers, context)
        if term.source == "stored":
            return stored_rewards(stored.get(name, {}), answers)
        return await _remembered(name, term, answers, context)

    terms = config.reward_terms
    given = dict(zip(terms, await asyncio.gather(*(ask(*one) for one in terms.items())), strict=True))
    await context.rewards.write(_verdict_rewards(answers, given.get(KERNEL_EVAL, SourceResult())))
    return given


async def _remembered(name: str, term: RewardTerm, answers: Sequence[Answer], context: JudgeContext) -> SourceResult:
    """The stored values, and the source's for all other answers; equal answers are requested once."""
    given = SourceResult()
    keys = {answer.call.call_id: _content(name, term, answer) for answer in answers}
    rows = rewards_of(context.catalog, sorted({answer.call.session_id for answer in answers}), [name])
    known = {row.idempotency_key: row.value for row in rows if row.source == SOURCE}
    for answer in answers:
        call_id = answer.call.call_id
        if (value := known.get(_key(name, call_id, keys[call_id]))) is not None:
            given.values[call_id] = value
    same: dict[str, list[Answer]] = {}
    for answer in answers:
        if answer.call.call_id not in given.values:
            same.setdefault(keys[answer.call.call_id], []).append(answer)
    fresh = SourceResult()

    async def on_result(asked: Sequence[Answer]) -> None:
        equal = [(one.call, other.call) for one in asked for other in same[keys[one.call.call_id]]]
        values = [(call, fresh.values[one.call_id]) for one, call in equal if one.call_id in fresh.values]
        given.values |= {call.call_id: value for call, value in values}
        finite = [(call, value) for call, value in values if math.isfinite(value)]
        rows = [_reward(name, c.session_id, c.call_id, value, keys[c.call_id]) for c, value in finite]
        await context.rewards.write(rows)

    ask = http_rewards if term.source == "http" else function_rewards
    if same and context.wanted():
        await ask(name, term, [of_one[0] for of_one in same.values()], context, fresh, on_result)
    for first, *others in same.values():
        if (why := fresh.without.get(first.call.call_id)) is not None:
            given.without.update((answer.call.call_id, why) for answer in (first, *others))
    given.outages = fresh.outages
    return given


def _content(name: str, term: RewardTerm, answer: Answer) -> str:
    task = None if answer.task is None else answer.task.task_id
    return content_hash(name, term.function, task, answer.messages, answer.text)


def _verdict_rewards(answers: Sequence[Answer], given: SourceResult) -> list[RewardRow]:
    """A reward for each judged call, and for each session that of its last call. Storing them is idempotent."""
    judged = [given.evaluations.get(answer.call.call_id) for answer in answers]
    rows = [row for row in judged if row is not None]
    incomplete = {a.call.session_id for a, row in zip(answers, judged, strict=True) if row is None}
    last = {row.session_id: row for row in rows if row.session_id not in incomplete}
    rewards = [_reward(KERNEL_EVAL, row.session_id, row.call_id, row.raw_reward, row.content_hash) for row in rows]
    rewards += [_reward(KERNEL_EVAL, row.session_id, None, row.raw_reward, row.content_hash) for row in last.values()]
    return rewards


def judged_of(
    answers: Sequence[Answer], given: Mapping[str, SourceResult], config: TrainerConfig, seconds: float
) -> Judged:
    """Rewards of the answers that have all of theirs, and why others have none."""
    rewards: dict[str, dict[str, float]] = {}
    without: dict[str, Skip] = {}
    for call_id in (answer.call.call_id for answer in answers):
        values = {name: one.values[call_id] for name, one in given.items() if call_id in one.values}
        if is_complete(values, config.reward_terms):
            rewards[call_id] = values
        else:
            reasons = [one.without[call_id] for one in given.values() if call_id in one.without]
            without[call_id] = reasons[0] if reasons else Skip.REWARD_NOT_FINITE
    evaluations = given[KERNEL_EVAL].evaluations if KERNEL_EVAL in given else {}
    return Judged(rewards=rewards, without=without, evaluations=evaluations, seconds=seconds)


def _key(name: str, target: str, content: str) -> str:
    return f"{name}:{target}:{content}"


def _reward(name: str, session_id: str, call_id: str | None, value: float, content: str) -> RewardRow:
    return RewardRow(
        session_id=session_id,
        call_id=call_id,
        name=name,
        value=value,
        source=SOURCE,
        idempotency_key=_key(name, call_id or session_id, content),
    )
