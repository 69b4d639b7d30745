"""Rewards from the kernel-evaluation server: every answer is a candidate for its group's task.

Invariant: verdicts are stored as they come, by the hash of what was judged, and never asked for twice: a round that is
continued finds them. Equal candidates are judged once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
from weir.store.catalog.rewards import evaluations_of
from weir.store.catalog.rows import EvaluationRow
from weir.store.clock import now_us
from weir.store.reader import StoredCall
from weir.trainer.rewards.answers import Answer, Asking, Given, content_hash
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.skip import Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The source of an answer, and the calls that gave it."""

    task: KernelTask
    source: str
    content_hash: str
    calls: list[StoredCall]


async def kernel_rewards(answers: Sequence[Answer], asking: Asking) -> Given:
    """The verdicts on answers: those that the catalog has, and the server's on all others."""
    given = Given()
    candidates = _candidates(answers, asking.config)
    hashes = {call.call_id: candidate.content_hash for candidate in candidates for call in candidate.calls}
    stored = evaluations_of(asking.catalog, hashes)
    missing: list[Candidate] = []
    for candidate in candidates:
        _take(given, [stored[call.call_id] for call in candidate.calls if call.call_id in stored])
        calls = [call for call in candidate.calls if call.call_id not in given.values]
        if calls:
            missing.append(
                Candidate(
                    task=candidate.task, source=candidate.source, content_hash=candidate.content_hash, calls=calls
                )
            )
    await _evaluate_all(missing, asking, given)
    return given


def _candidates(answers: Sequence[Answer], config: TrainerConfig) -> list[Candidate]:
    """Distinct candidates; the hash covers all that a verdict depends on."""
    found: dict[str, Candidate] = {}
    for answer in answers:
        task = answer.task
        assert task is not None, "a group without a kernel task is not chosen for kernel evaluation"
        source = candidate_source(task, answer.text)
        judged = (task.reference_src, task.backend, task.relax_rules, source)
        key = content_hash(*judged, config.judge_seed, config.num_correct_trials)
        found.setdefault(key, Candidate(task=task, source=source, content_hash=key, calls=[])).calls.append(answer.call)
    return list(found.values())


async def _evaluate_all(candidates: Sequence[Candidate], asking: Asking, given: Given) -> None:
    if not candidates:
        return
    config = asking.config
    client = KernelEvalClient(
        config.kernel_eval_url,
        config.kernel_eval_key,
        timeout_s=config.judge_timeout_s,
        attempts=config.judge_attempts,
        backoff_s=config.judge_retry_delay_s,
    )

    async def evaluate(candidate: Candidate) -> None:
        async with asking.slots:
            rows = await _evaluate(client, candidate, asking, given)
        await asking.verdicts.keep(rows)
        _take(given, rows)

    try:
        await asyncio.gather(*(evaluate(candidate) for candidate in candidates))
    finally:
        await client.aclose()


async def _evaluate(
    client: KernelEvalClient, candidate: Candidate, asking: Asking, given: Given
) -> list[EvaluationRow]:
    if not asking.goes_on(given):
        return []
    try:
        result = await client.evaluate(
            candidate.task,
            candidate.source,
            seed=asking.config.judge_seed,
            num_correct_trials=asking.config.num_correct_trials,
            use_cache=asking.config.judge_use_cache,
        )
    except KernelUnsupported:
        given.without.update((call.call_id, Skip.UNSUPPORTED) for call in candidate.calls)
    except KernelEvalUnavailable as error:
        given.outages.append(f"{error}; start the kernel-evaluation server")
    else:
        asking.on_value()
        return [_evaluation(candidate, call, result, asking.round_id) for call in candidate.calls]
    return []


def _take(given: Given, rows: Sequence[EvaluationRow]) -> None:
    for row in rows:
        given.evaluations[row.call_id] = row
        given.values[row.call_id] = row.raw_reward


def _evaluation(candidate: Candidate, call: StoredCall, result: EvalResult, round_id: int | None) -> EvaluationRow:
    return EvaluationRow(
        call_id=call.call_id,
        session_id=call.session_id,
        group_id=call.group_id,
        round_id=round_id,
        content_hash=candidate.content_hash,
        compiled=result.compiled,
        correct=result.correct,
        fault=result.fault,
        raw_reward=result.raw_reward,
        result=msgspec.to_builtins(result),
        created_us=now_us(),
    )
