"""Rewards from a reward model over HTTP, in the form that the trainer's reward models have, with one item.

POST url {"name": "style", "items": [{"session_id", "task_id", "messages", "answer"}]}
200 {"rewards": [0.7]}
"""

from __future__ import annotations

import math
from typing import Any

import httpx
import stamina

from weir.agents.agent_task import AgentTask, RewardSpec
from weir.agents.errors import RewardFailed
from weir.kernel_eval.client import tls_context

ATTEMPTS = 4


async def http_reward(
    name: str, spec: RewardSpec, task: AgentTask, session_id: str, answer: str, key: str | None
) -> float:
    """The model's number. Raises `RewardFailed` where it gives none."""
    assert spec.url is not None
    messages = [{"role": "user", "content": task.prompt}]
    item = {"session_id": session_id, "task_id": task.task_id, "messages": messages, "answer": answer}
    reply = await post(name, spec.url, {"name": name, "items": [item]}, key, spec.timeout_s)
    rewards = reply.get("rewards") if isinstance(reply, dict) else None
    value = rewards[0] if isinstance(rewards, list) and len(rewards) == 1 else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RewardFailed(f'the reward {name}: expected {{"rewards": [a number]}} from {spec.url}, got {reply!r:.200}')
    return float(value)


async def post(name: str, url: str, body: dict[str, Any], key: str | None, timeout_s: float) -> Any:
    """The JSON answer to a request, retried a bounded number of times. Raises `RewardFailed` where there is none."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        async with httpx.AsyncClient(headers=headers, timeout=timeout_s, trust_env=False, verify=tls_context()) as http:
            async for attempt in stamina.retry_context(on=_may_pass, attempts=ATTEMPTS, timeout=None):
                with attempt:
                    answer = await http.post(url, json=body)
                    answer.raise_for_status()
                    return answer.json()
    except httpx.HTTPStatusError as error:
        said = f"HTTP {error.response.status_code}: {error.response.text[:300]}"
        raise RewardFailed(f"the reward {name}: no answer from {url}: {said}") from error
    except (httpx.HTTPError, ValueError) as error:
        raise RewardFailed(f"the reward {name}: no answer from {url}: {type(error).__name__} {error}") from error


def _may_pass(error: Exception) -> bool:
    """Whether the same request may be answered later: anything but a refusal of this very request."""
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return status >= 500 or status in (408, 429)
    return isinstance(error, (httpx.HTTPError, ValueError))
