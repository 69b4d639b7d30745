"""Rewards from the kernel-evaluation server: every call's answer is a candidate for its group's task.

Invariant: a reward is a verdict on a candidate; an outage is never one. Verdicts are stored as they come, by the hash
of what was judged, and never asked for twice: a round that is continued finds them. Equal candidates are judged once.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from weir.kernel_eval.client import (
    EvalResult,
    KernelEvalClient,
    KernelEvalUnavailable,
    KernelTask,
    KernelUnsupported,
    candidate_source,
)
from weir.store.catalog import Catalog
from weir.store.catalog_rows import EvaluationRow, RewardRow
from weir.store.reader import StoredCall
from weir.trainer.config import TrainerConfig
from weir.trainer.errors import JudgeUnavailable

REWARD_NAME = "kernel_eval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A call's answer, ready to be judged."""

    call: StoredCall
    task: KernelTask
    source: str
    content_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Verdicts by call; `unsupported` are calls that this server cannot judge at all."""

    evaluations: dict[str, EvaluationRow]
    unsupported: list[str]
    seconds: float


@dataclass(slots=True)
class _Outcomes:
    verdicts: dict[str, EvalResult]
    unsupported: set[str]
    outages: list[str]


def make_candidate(call: StoredCall, task: KernelTask, config: TrainerConfig) -> Candidate:
    """The candidate of a call; its hash covers all that a verdict depends on."""
    source = candidate_source(task, call.answer_text)
    judged = [task.reference_src, task.backend, source, config.judge_seed, config.num_correct_trials]
    return Candidate(
        call=call, task=task, source=source, content_hash=hashlib.sha256(msgspec.json.encode(judged)).hexdigest()
    )


def judge(
    candidates: Sequence[Candidate],
    catalog: Catalog,
    config: TrainerConfig,
    *,
    round_id: int,
    on_verdict: Callable[[], None] = lambda: None,
) -> Judged:
    """Judge what the catalog has no verdict on; store verdicts and rewards.

    Raises `JudgeUnavailable` when any evaluation found no server; the verdicts that were reached are stored all the
    same.
    """
    started = time.monotonic()
    known = _known_verdicts(candidates, catalog)
    missing = [candidate for candidate in candidates if candidate.call.call_id not in known]
    outcomes = asyncio.run(_evaluate_all(missing, config, on_verdict))
    fresh = [
        _evaluation(candidate, outcomes.verdicts[candidate.content_hash], round_id)
        for candidate in missing
        if candidate.content_hash in outcomes.verdicts
    ]
    catalog.add_evaluations(fresh)
    evaluations = known | {row.call_id: row for row in fresh}
    _store_rewards(candidates, evaluations, catalog)
    if outcomes.outages:
        raise JudgeUnavailable(
            f"{len(outcomes.outages)} evaluations of round {round_id} reached no verdict ({outcomes.outages[0]}); "
            "the round stays open: start the kernel-evaluation server and run `weir round` again"
        )
    unsupported = [c.call.call_id for c in missing if c.content_hash in outcomes.unsupported]
    return Judged(evaluations=evaluations, unsupported=unsupported, seconds=time.monotonic() - started)


def _known_verdicts(candidates: Sequence[Candidate], catalog: Catalog) -> dict[str, EvaluationRow]:
    stored = catalog.evaluations_of([candidate.call.call_id for candidate in candidates])
    hashes = {candidate.call.call_id: candidate.content_hash for candidate in candidates}
    return {call_id: row for call_id, row in stored.items() if row.content_hash == hashes[call_id]}


async def _evaluate_all(
    candidates: Sequence[Candidate], config: TrainerConfig, on_verdict: Callable[[], None]
) -> _Outcomes:
    distinct = list({candidate.content_hash: candidate for candidate in candidates}.values())
    outcomes = _Outcomes({}, set(), [])
    client = KernelEvalClient(
        config.kernel_eval_url,
        config.kernel_eval_key,
        timeout_s=config.judge_timeout_s,
        attempts=config.judge_attempts,
        backoff_s=config.judge_retry_delay_s,
    )
    slots = asyncio.Semaphore(config.judge_concurrency)

    async def evaluate(candidate: Candidate) -> None:
        async with slots:
            await _evaluate(client, candidate, config, outcomes)
        on_verdict()

    try:
        await asyncio.gather(*(evaluate(candidate) for candidate in distinct))
    finally:
        await client.aclose()
    return outcomes


async def _evaluate(client: KernelEvalClient, candidate: Candidate, config: TrainerConfig, outcomes: _Outcomes) -> None:
    if outcomes.outages:
        return  # the server is away; what has not been asked is asked next time
    try:
        outcomes.verdicts[candidate.content_hash] = await client.evaluate(
            candidate.task,
            candidate.source,
            seed=config.judge_seed,
            num_correct_trials=config.num_correct_trials,
            use_cache=config.judge_use_cache,
        )
    except KernelUnsupported:
        outcomes.unsupported.add(candidate.content_hash)
    except KernelEvalUnavailable as error:
        outcomes.outages.append(str(error))


def _evaluation(candidate: Candidate, result: EvalResult, round_id: int) -> EvaluationRow:
    return EvaluationRow(
        call_id=candidate.call.call_id,
        session_id=candidate.call.session_id,
        group_id=candidate.call.group_id,
        round_id=round_id,
        content_hash=candidate.content_hash,
        compiled=result.compiled,
        correct=result.correct,
        fault=result.fault,
        raw_reward=result.raw_reward,
        result=msgspec.to_builtins(result),
        created_us=time.time_ns() // 1000,
    )


def _store_rewards(candidates: Sequence[Candidate], evaluations: dict[str, EvaluationRow], catalog: Catalog) -> None:
    """A reward for each judged call, and for each session that of its last call. Asked twice, it changes nothing."""
    complete = {c.call.session_id for c in candidates} - {
        c.call.session_id for c in candidates if c.call.call_id not in evaluations
    }
    last: dict[str, float] = {}
    rewards: list[RewardRow] = []
    for candidate in candidates:
        row = evaluations.get(candidate.call.call_id)
        if row is None:
            continue
        last[row.session_id] = row.raw_reward
        rewards.append(_reward(row.session_id, row.call_id, row.raw_reward))
    rewards += [_reward(session_id, None, last[session_id]) for session_id in sorted(complete)]
    catalog.add_rewards(rewards)


def _reward(session_id: str, call_id: str | None, value: float) -> RewardRow:
    return RewardRow(
        session_id=session_id,
        call_id=call_id,
        name=REWARD_NAME,
        value=value,
        source="trainer",
        idempotency_key=f"{REWARD_NAME}:{call_id or session_id}",
    )
