"""Rewards from a Python function of a `SessionResult`, named by its import path; it may be async.

It runs in the process of `weir run`, in a thread unless it is async: it is the user's own code, not the agent's.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import pkgutil
from typing import Any

from weir.agents.errors import RewardFailed


async def function_reward(name: str, path: str, result: Any, timeout_s: float) -> float:
    """The function's number. Raises `RewardFailed` where it cannot be imported, raises, or gives no finite number."""
    try:
        function = pkgutil.resolve_name(path)
        async with asyncio.timeout(timeout_s):
            asked = function(result) if inspect.iscoroutinefunction(function) else asyncio.to_thread(function, result)
            value = float(await asked)
    except Exception as error:  # users' code: whatever it raises is an outage
        raise RewardFailed(f"the reward {name} ({path}) raised {type(error).__name__}: {error}; fix it") from error
    if not math.isfinite(value):
        raise RewardFailed(f"the reward {name} ({path}) returned {value}; a reward is a finite number")
    return value
