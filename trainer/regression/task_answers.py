"""Gets a model's answers to tasks from an engine with SGLang's HTTP interface, and the judge's verdicts on them.

Invariant: every task has the same number of answers, each with its own fixed seed, so that the same weights on the same
engine give the same answers again. Nothing is recorded and nothing is trained on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec

from weir.kernel_eval.client import (
    EvalResult,
    KernelEvalClient,
    KernelEvalUnavailable,
    KernelTask,
    KernelUnsupported,
    candidate_source,
)
from weir.store.catalog.rows import EvaluationRow
from weir.store.clock import now_us
from weir.trainer.errors import JudgeUnavailable, PublishFailed
from weir.trainer.http_json import Refused, post
from weir.trainer.regression.compare import RegressionConfig, Verdicts

ANSWER_TIMEOUT_S = 600.0
SERVED_AS = "regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A task with its rendered prompt."""

    task: KernelTask
    prompt_ids: list[int]
    stop_ids: list[int]
    text_of: Callable[[list[int]], str]  # decodes an answer's tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The engine that answers and the server that judges."""

    engine_url: str
    kernel_eval_url: str
    kernel_eval_key: str | None


def verdicts(weights: Path, questions: Sequence[Question], place: Place, config: RegressionConfig) -> Verdicts:
    """Load a folder into the engine, have it answer every question `config.samples` times, and judge the answers.

    Raises `PublishFailed` where the engine does not load it or does not answer, `JudgeUnavailable` where a verdict is
    missing.
    """
    return asyncio.run(_verdicts(str(weights.absolute()), questions, place, config))


async def _verdicts(weights: str, questions: Sequence[Question], place: Place, config: RegressionConfig) -> Verdicts:
    asked = [question for question in questions for _ in range(config.samples)]
    try:
        texts = await _answers(weights, asked, place, config)
    except Refused as error:
        raise PublishFailed(f"the engine at {place.engine_url} did not answer the tasks: {error}") from error
    candidates = [
        (question.task.task_id, candidate_source(question.task, text))
        for question, text in zip(asked, texts, strict=True)
    ]
    tasks = {question.task.task_id: question.task for question in questions}
    try:
        results = await _results(tasks, set(candidates), place, config)
    except KernelEvalUnavailable as error:
        raise JudgeUnavailable(f"not every answer could be judged: {error}") from error
    judged = [(number, one, results[one]) for number, one in enumerate(candidates)]
    rows = [_row(number, task_id, result) for number, (task_id, _), result in judged if result is not None]
    return Verdicts(rows=rows, num_unsupported=len(candidates) - len(rows))


async def _answers(weights: str, asked: Sequence[Question], place: Place, config: RegressionConfig) -> list[str]:
    """The texts of the answers, each sampled with its own seed."""
    slots = asyncio.Semaphore(config.concurrency)
    async with httpx.AsyncClient(trust_env=False) as http:
        await _load(http, weights, place.engine_url)

        async def answer(number: int, question: Question) -> str:
            sampling = {
                "max_new_tokens": config.max_tokens,
                "temperature": config.temperature,
                "stop_token_ids": question.stop_ids,
                "sampling_seed": config.seed + number,
            }
            body = {"input_ids": question.prompt_ids, "sampling_params": sampling}
            async with slots:
                sampled = await post(http, f"{place.engine_url}/generate", body, timeout_s=ANSWER_TIMEOUT_S)
            return question.text_of(list(sampled["output_ids"]))

        return await asyncio.gather(*(answer(*one) for one in enumerate(asked)))


async def _load(http: httpx.AsyncClient, weights: str, engine_url: str) -> None:
    """Make the engine serve the weights under a name that no published version has. Raises `Refused`."""
    body = {"model_path": weights, "weight_version": SERVED_AS, "flush_cache": True}
    loaded = await post(http, f"{engine_url}/update_weights_from_disk", body, timeout_s=ANSWER_TIMEOUT_S)
    if loaded.get("success") is not True:
        raise Refused(f"it refused the weights in {weights}: {loaded.get('message')}")
    await post(http, f"{engine_url}/continue_generation", {})  # in case a failed publish left it paused


async def _results(
    tasks: Mapping[str, KernelTask], candidates: Iterable[tuple[str, str]], place: Place, config: RegressionConfig
) -> dict[tuple[str, str], EvalResult | None]:
    """The verdict on each distinct candidate; None where it cannot be judged."""
    slots = asyncio.Semaphore(config.concurrency)
    results: dict[tuple[str, str], EvalResult | None] = {}

    async def judge(task_id: str, source: str) -> None:
        async with slots:
            with suppress(KernelUnsupported):
                results[task_id, source] = None
                results[task_id, source] = await client.evaluate(
                    tasks[task_id],
                    source,
                    seed=config.seed,
                    num_correct_trials=config.num_correct_trials,
                    measure_performance=True,
                )

    async with aclosing(KernelEvalClient(place.kernel_eval_url, place.kernel_eval_key)) as client:
        await asyncio.gather(*(judge(*candidate) for candidate in candidates))
    return results


def _row(number: int, task_id: str, result: EvalResult) -> EvaluationRow:
    return EvaluationRow(
        call_id=str(number),
        session_id=str(number),
        group_id=task_id,
        round_id=None,
        content_hash="",
        compiled=result.compiled,
        correct=result.correct,
        fault=result.fault,
        raw_reward=result.raw_reward,
        result=msgspec.to_builtins(result),
        created_us=now_us(),
    )
