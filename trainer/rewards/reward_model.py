"""Rewards from a reward model over HTTP, several answers in one request.

    POST url {"name": "style", "items": [{"call_id", "session_id", "group_id", "task_id", "messages", "answer"}, …]}
    200 {"rewards": [0.7, null, …]}   one for each item, in their order; null: this one cannot be rewarded

Invariant: an error status, an invalid answer and no answer are outages, retried a bounded number of times; none of them
is a reward.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import httpx
import stamina

from weir.kernel_eval.client import tls_context
from weir.trainer.http_json import NO_ANSWER, why_no_answer, within
from weir.trainer.rewards.answers import Answer, JudgeContext, OnResult, SourceResult
from weir.trainer.settings.reward_terms import RewardTerm
from weir.trainer.skip import Skip

OUTAGES = (*NO_ANSWER, ValueError, RecursionError)  # no answer, or one of another form


async def http_rewards(
    name: str,
    term: RewardTerm,
    answers: Sequence[Answer],
    context: JudgeContext,
    result: SourceResult,
    on_result: OnResult,
) -> None:
    """Request the rewards of all answers, `batch_size` in each request."""
    headers = {} if term.key is None else {"authorization": f"Bearer {term.key}"}
    batches = [answers[start : start + term.batch_size] for start in range(0, len(answers), term.batch_size)]
    async with httpx.AsyncClient(headers=headers, timeout=None, trust_env=False, verify=tls_context()) as http:

        async def ask(batch: Sequence[Answer]) -> None:
            async with context.slots:
                if context.may_ask(result):
                    await _ask(http, name, term, batch, context, result)
            await on_result(batch)

        await asyncio.gather(*(ask(batch) for batch in batches))


async def _ask(
    http: httpx.AsyncClient,
    name: str,
    term: RewardTerm,
    batch: Sequence[Answer],
    context: JudgeContext,
    result: SourceResult,
) -> None:
    assert term.url is not None
    config = context.config
    body = {"name": name, "items": [_item(answer) for answer in batch]}
    retries = stamina.retry_context(
        on=OUTAGES,
        attempts=config.judge_attempts,
        timeout=None,
        wait_initial=config.judge_retry_delay_s,
        wait_max=math.inf,
        wait_jitter=0,
    )
    try:
        async for attempt in retries:
            with attempt:
                response = await within(config.judge_timeout_s, http.post(term.url, json=body))
                rewards = _rewards(response, len(batch))
    except OUTAGES as error:
        result.outages.append(
            f"no rewards {name} from {term.url} after {config.judge_attempts} attempts: {why_no_answer(error)}; "
            "start or repair it"
        )
        return
    for answer, reward in zip(batch, rewards, strict=True):
        _take(result, answer.call.call_id, reward)
    context.on_value()


def _take(result: SourceResult, call_id: str, reward: float | None) -> None:
    if reward is None:
        result.without[call_id] = Skip.UNREWARDED
    else:
        result.values[call_id] = reward


def _item(answer: Answer) -> dict[str, Any]:
    call = answer.call
    return {
        "call_id": call.call_id,
        "session_id": call.session_id,
        "group_id": call.group_id,
        "task_id": None if answer.task is None else answer.task.task_id,
        "messages": answer.messages,
        "answer": answer.text,
    }


def _rewards(response: httpx.Response, count: int) -> list[float | None]:
    """The rewards in an HTTP answer. Raises `ValueError` where its form is wrong."""
    if response.status_code != 200:
        raise ValueError(f"status {response.status_code}: {response.text[:200]}")
    value = response.json()
    rewards = value.get("rewards") if isinstance(value, dict) else None
    if not isinstance(rewards, list) or len(rewards) != count:
        raise ValueError(f'expected {{"rewards": [{count} numbers]}}, got {response.text[:200]}')
    if not all(reward is None or _is_number(reward) for reward in rewards):
        raise ValueError(f"a reward is a number or null, got {response.text[:200]}")
    return [None if reward is None else _float(reward) for reward in rewards]


def _float(reward: int | float) -> float:
    try:
        return float(reward)
    except OverflowError:  # an integer beyond the range of floats counts as infinite
        return math.inf if reward > 0 else -math.inf


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
