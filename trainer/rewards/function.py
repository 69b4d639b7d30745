"""Rewards from a Python function that is named by its import path: `def brevity(answer: Answer) -> float | None`.

It may be `async`; one that is not runs in a thread. None: this answer cannot be rewarded. Invariant: a function that
raises, or gives nothing within `judge_timeout_s`, has given no reward; that is told, and the answers it was not asked
about are asked next time. Not contained: a thread that never returns stays until the process ends, and an `async`
function that blocks or holds off its cancellation holds up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

from weir.trainer.import_path import import_function, in_a_line
from weir.trainer.rewards.answers import Answer, Asking, Given, OnGiven
from weir.trainer.settings.reward_terms import RewardTerm
from weir.trainer.skip import Skip

_Outcome = tuple[float | None, str | None]  # the reward, or why there is none: never both


async def function_rewards(
    name: str, term: RewardTerm, answers: Sequence[Answer], asking: Asking, given: Given, on_given: OnGiven
) -> None:
    """Call the function for each answer. Raises `TrainerUsageError` where the path names none."""
    assert term.function is not None
    function = import_function(term.function)

    async def ask(answer: Answer) -> None:
        call_id = answer.call.call_id
        async with asking.slots:
            if not asking.goes_on(given):
                return
            value, failure = await _outcome(function, answer, asking.config.judge_timeout_s)
        if failure is not None:
            given.outages.append(f"the reward {name} ({term.function}) {failure} on call {call_id}; mend it")
            return
        if value is None:
            given.without[call_id] = Skip.UNREWARDED
        else:
            given.values[call_id] = value
        asking.on_value()
        await on_given([answer])

    await asyncio.gather(*(ask(answer) for answer in answers))


async def _outcome(function: Callable[..., Any], answer: Answer, timeout_s: float) -> _Outcome:
    call = _in_loop if inspect.iscoroutinefunction(function) else _in_thread
    asked = asyncio.ensure_future(call(function, answer))
    await asyncio.wait({asked}, timeout=timeout_s)
    if asked.done():
        return asked.result()
    asked.cancel()
    return None, f"gave nothing within judge_timeout_s = {timeout_s:g} s"


async def _in_loop(function: Callable[..., Any], answer: Answer) -> _Outcome:
    try:
        return _number(await function(answer)), None
    except KeyboardInterrupt:  # the user's own
        raise
    except BaseException as error:  # users' code: whatever it raises is its outage, and told
        return None, f"raised {in_a_line(error)}"


async def _in_thread(function: Callable[..., Any], answer: Answer) -> _Outcome:
    """In a thread of its own: those of a pool are waited for at the end, however long they take."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_Outcome] = loop.create_future()

    def told(said: _Outcome) -> None:
        if not outcome.done():
            outcome.set_result(said)

    def run() -> None:
        said: _Outcome
        try:
            said = _number(function(answer)), None
        except BaseException as error:  # users' code, where no signal arrives: whatever it raises is its outage
            said = None, f"raised {in_a_line(error)}"
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(told, said)

    threading.Thread(target=run, name="weir-reward", daemon=True).start()
    return await outcome


def _number(reward: Any) -> float | None:
    return None if reward is None else float(reward)
