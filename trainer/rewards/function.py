"""Rewards from a Python function named by its import path: `def brevity(answer: Answer) -> float | None`.

It may be `async`; otherwise it runs in a thread. None: this answer cannot be rewarded. Invariant: a function that
raises or times out (`judge_timeout_s`) is an outage, which is reported; the remaining answers are asked about at the
next start. Not contained: a thread that never returns stays until the process ends, and an `async` function that blocks
or ignores its cancellation delays the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

from weir.trainer.import_path import import_function, in_a_line
from weir.trainer.rewards.answers import Answer, JudgeContext, OnResult, SourceResult
from weir.trainer.settings.reward_terms import RewardTerm
from weir.trainer.skip import Skip

_Outcome = tuple[float | None, str | None]  # the reward, or why there is none: at most one of them


async def function_rewards(
    name: str,
    term: RewardTerm,
    answers: Sequence[Answer],
    context: JudgeContext,
    result: SourceResult,
    on_result: OnResult,
) -> None:
    """Call the function for each answer. Raises `TrainerUsageError` where the path names none."""
    assert term.function is not None
    function = import_function(term.function)

    async def ask(answer: Answer) -> None:
        call_id = answer.call.call_id
        async with context.slots:
            if not context.may_ask(result):
                return
            value, failure = await _outcome(function, answer, context.config.judge_timeout_s)
        if failure is not None:
            result.outages.append(f"the reward {name} ({term.function}) {failure} on call {call_id}; fix it")
            return
        if value is None:
            result.without[call_id] = Skip.UNREWARDED
        else:
            result.values[call_id] = value
        context.on_value()
        await on_result([answer])

    await asyncio.gather(*(ask(answer) for answer in answers))


async def _outcome(function: Callable[..., Any], answer: Answer, timeout_s: float) -> _Outcome:
    call = _in_loop if inspect.iscoroutinefunction(function) else _in_thread
    asked = asyncio.ensure_future(call(function, answer))
    await asyncio.wait({asked}, timeout=timeout_s)
    if asked.done():
        return asked.result()
    asked.cancel()
    return None, f"returned nothing within judge_timeout_s = {timeout_s:g} s"


async def _in_loop(function: Callable[..., Any], answer: Answer) -> _Outcome:
    try:
        return _number(await function(answer)), None
    except KeyboardInterrupt:  # the user's own
        raise
    except BaseException as error:  # users' code: whatever it raises is an outage, and reported
        return None, f"raised {in_a_line(error)}"


async def _in_thread(function: Callable[..., Any], answer: Answer) -> _Outcome:
    """Call it in a daemon thread: the process would wait for the threads of a pool at its end."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_Outcome] = loop.create_future()

    def deliver(ended: _Outcome) -> None:
        if not outcome.done():
            outcome.set_result(ended)

    def run() -> None:
        ended: _Outcome
        try:
            ended = _number(function(answer)), None
        except BaseException as error:  # users' code, outside the main thread: whatever it raises is an outage
            ended = None, f"raised {in_a_line(error)}"
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(deliver, ended)

    threading.Thread(target=run, name="weir-reward", daemon=True).start()
    return await outcome


def _number(reward: Any) -> float | None:
    return None if reward is None else float(reward)
