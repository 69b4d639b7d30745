"""Rewards from the kernel-evaluation server: every answer is a candidate for its group's task.

Invariant: verdicts are stored as they arrive, under the hash of the judged content, and never requested twice: a
resumed round finds them. Equal candidates are judged once.
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
from weir.trainer.errors import JudgeUnavailable, TrainerUsageError
from weir.trainer.rewards.answers import Answer, JudgeContext, SourceResult, content_hash
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.skip import Skip

GPU = "gpu"  # the mode of judges that time


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The source code of an answer, and the calls that have it."""

    task: KernelTask
    source: str
    content_hash: str
    calls: list[StoredCall]


async def kernel_rewards(answers: Sequence[Answer], context: JudgeContext) -> SourceResult:
    """The verdicts on answers: stored ones, and the server's for all others."""
    given = SourceResult()
    candidates = _candidates(answers, context.config)
    hashes = {call.call_id: candidate.content_hash for candidate in candidates for call in candidate.calls}
    stored = evaluations_of(context.catalog, hashes)
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
    await _evaluate_all(missing, context, given)
    return given


def _candidates(answers: Sequence[Answer], config: TrainerConfig) -> list[Candidate]:
    """Distinct candidates; the hash covers everything that a verdict depends on."""
    found: dict[str, Candidate] = {}
    for answer in answers:
        task = answer.task
        assert task is not None, "a group without a kernel task is not chosen for kernel evaluation"
        source = candidate_source(task, answer.text)
        judged = (task.reference_src, task.backend, task.relax_rules, source)
        timed = config.timed_reward
        timing = () if timed is None else ("timed", timed.performance_trials)
        key = content_hash(*judged, config.judge_seed, config.num_correct_trials, *timing)
        found.setdefault(key, Candidate(task=task, source=source, content_hash=key, calls=[])).calls.append(answer.call)
    return list(found.values())


async def _evaluate_all(candidates: Sequence[Candidate], context: JudgeContext, given: SourceResult) -> None:
    if not candidates:
        return
    client = _client(context.config)

    async def evaluate(candidate: Candidate) -> None:
        async with context.slots:
            rows = await _evaluate(client, candidate, context, given)
        await context.verdicts.write(rows)
        _take(given, rows)

    try:
        await asyncio.gather(*(evaluate(candidate) for candidate in candidates))
    finally:
        await client.aclose()


def require_timing(config: TrainerConfig) -> None:
    """Ask the server whether it can time answers, where the settings reward speed.

    Raises `TrainerUsageError` where it judges without a GPU, and `JudgeUnavailable` where it does not answer.
    """
    if config.timed_reward is None:
        return
    try:
        mode = asyncio.run(_mode(config))
    except KernelEvalUnavailable as error:
        raise JudgeUnavailable(f"{error}; start the kernel-evaluation server: nothing was claimed") from error
    if mode != GPU:
        raise TrainerUsageError(_without_speed(config, mode))


async def _mode(config: TrainerConfig) -> str:
    client = _client(config)
    try:
        return await client.mode()
    finally:
        await client.aclose()


def _without_speed(config: TrainerConfig, mode: str) -> str:
    return (
        f"trainer.rewards.kernel_eval has performance = true, and the judge at {config.kernel_eval_url} runs on the "
        f"{mode}, which shows nothing about speed; name a judge that has a GPU, or remove performance"
    )


def _client(config: TrainerConfig) -> KernelEvalClient:
    return KernelEvalClient(
        config.kernel_eval_url,
        config.kernel_eval_key,
        timeout_s=config.judge_timeout_s,
        attempts=config.judge_attempts,
        backoff_s=config.judge_retry_delay_s,
    )


async def _evaluate(
    client: KernelEvalClient, candidate: Candidate, context: JudgeContext, given: SourceResult
) -> list[EvaluationRow]:
    if not context.may_ask(given):
        return []
    timed = context.config.timed_reward
    try:
        result = await client.evaluate(
            candidate.task,
            candidate.source,
            seed=context.config.judge_seed,
            num_correct_trials=context.config.num_correct_trials,
            use_cache=context.config.judge_use_cache,
            measure_performance=timed is not None,
            num_perf_trials=100 if timed is None else timed.performance_trials,
        )
    except KernelUnsupported:
        given.without.update((call.call_id, Skip.UNSUPPORTED) for call in candidate.calls)
    except KernelEvalUnavailable as error:
        given.outages.append(f"{error}; start the kernel-evaluation server")
    else:
        if timed is not None and result.mode != GPU:
            given.outages.append(_without_speed(context.config, result.mode))
            return []
        context.on_value()
        return [_evaluation(candidate, call, result, context.round_id) for call in candidate.calls]
    return []


def _take(given: SourceResult, rows: Sequence[EvaluationRow]) -> None:
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
