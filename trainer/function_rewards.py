"""Rewards from a Python function that is named by its import path: `def brevity(answer: Answer) -> float | None`.

It may be `async`; one that is not runs in a thread. None: this answer cannot be rewarded. Invariant: a function that
raises has given no reward; what it raised is named, and the answers it was not asked about are asked next time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from weir.trainer.answers import Answer, Asking, Given, OnGiven
from weir.trainer.hooks import import_function
from weir.trainer.reward_terms import RewardTerm
from weir.trainer.samples import Skip


async def function_rewards(
    name: str, term: RewardTerm, answers: Sequence[Answer], asking: Asking, given: Given, on_given: OnGiven
) -> None:
    """Call the function for each answer. Raises `TrainerUsageError` where the path names none."""
    assert term.function is not None
    function = import_function(term.function)

    async def ask(answer: Answer) -> None:
        async with asking.slots:
            if not asking.goes_on(given):
                return
            try:
                reward = await _call(function, answer)
                value = None if reward is None else float(reward)
            except Exception as error:  # users' code: whatever it raises is its outage, and told
                given.outages.append(
                    f"the reward {name} ({term.function}) raised {type(error).__name__}: {error} on call "
                    f"{answer.call.call_id}; mend it"
                )
                return
        if value is None:
            given.without[answer.call.call_id] = Skip.UNREWARDED
        else:
            given.values[answer.call.call_id] = value
        asking.on_value()
        await on_given([answer])

    await asyncio.gather(*(ask(answer) for answer in answers))


async def _call(function: Callable[..., Any], answer: Answer) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(answer)
    return await asyncio.to_thread(function, answer)
