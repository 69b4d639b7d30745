"""Rewards from a model that judges answers, served by SGLang or any other OpenAI-compatible server.

The template is filled by plain replacement of {prompt} and {answer}: braces in an answer mean nothing. Temperature 0.
"""

from __future__ import annotations

import re

from weir.agents.agent_task import RewardSpec
from weir.agents.errors import RewardFailed
from weir.agents.rewards.reward_model import post

MAX_TOKENS = 1024


async def judge_reward(name: str, spec: RewardSpec, prompt: str, answer: str, key: str | None) -> float:
    """The number in the judge's answer. Raises `RewardFailed` where there is no answer, or no number in it."""
    assert spec.judge_url is not None and spec.judge_template is not None
    body = {
        "model": spec.judge_model,
        "messages": [{"role": "user", "content": filled(spec.judge_template, prompt, answer)}],
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
    }
    url = f"{spec.judge_url.rstrip('/')}/chat/completions"
    reply = await post(name, url, body, key, spec.timeout_s)
    try:
        said = reply["choices"][0]["message"]["content"] or ""
    except (KeyError, IndexError, TypeError) as error:
        raise RewardFailed(f"the reward {name}: {url} answered in no known form: {reply!r:.200}") from error
    return parsed(name, spec.judge_pattern, said)


def filled(template: str, prompt: str, answer: str) -> str:
    """The template with prompt and answer in their places, each replaced once over."""
    values = {"{prompt}": prompt, "{answer}": answer}
    return re.sub(r"\{prompt\}|\{answer\}", lambda match: values[match[0]], template)


def parsed(name: str, pattern: str, said: str) -> float:
    """The number in the last match. Raises `RewardFailed` where nothing matches."""
    matches = list(re.finditer(pattern, said))
    try:
        return float(matches[-1][1])
    except (IndexError, ValueError, TypeError) as error:
        raise RewardFailed(
            f"the reward {name}: no number by {pattern!r} in the judge's answer {said!r:.200}"
        ) from error
