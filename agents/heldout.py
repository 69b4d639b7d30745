"""Evaluates a model on tasks without training on its answers: one answer per session, judged at once.

Invariant: the sessions have no group size, so that no round claims them; they are recorded like any others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from weir.agents.config import AgentsConfig
from weir.agents.control import ControlClient
from weir.agents.errors import AgentsError
from weir.agents.kernel_agent import ask, first_message, open_judge, open_model
from weir.agents.runner import SessionOutcome, run_groups
from weir.kernel_eval.client import KernelTask, candidate_source


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Means over the judged answers."""

    num_answers: int
    correct: float  # share of correct answers
    reward: float  # mean raw reward
    faults: dict[str, int]  # fault → number of answers


async def measure(
    tasks: Sequence[KernelTask],
    control: ControlClient,
    config: AgentsConfig,
    *,
    on_session: Callable[[SessionOutcome], None] | None = None,
) -> Measured:
    """Get and judge `config.samples` answers to each task, in sessions of one turn; equal answers are judged once.

    Raises `AgentsError` when no answer could be judged, or any session failed: means over the rest would mislead.
    """
    groups = run_groups(
        tasks, answer_once, control, config, num_groups=len(tasks), trainable=False, on_session=on_session
    )
    outcomes = [session async for group in groups for session in group.sessions]
    failed = [outcome for outcome in outcomes if outcome.failure is not None]
    if failed or not outcomes:
        first = f"; the first: {failed[0].failure}: {failed[0].error}" if failed else ""
        raise AgentsError(f"{len(failed)} of {len(outcomes)} measuring sessions failed{first}")
    infos = [outcome.info for outcome in outcomes]
    return Measured(
        num_answers=len(infos),
        correct=sum(info["correct"] for info in infos) / len(infos),
        reward=sum(info["reward"] for info in infos) / len(infos),
        faults=dict(Counter(info["fault"] for info in infos if info["fault"] is not None)),
    )


async def answer_once(task: KernelTask, base_url: str, api_key: str, config: AgentsConfig) -> dict[str, Any]:
    """An agent with a single turn, whose info holds the verdict."""
    async with open_model(base_url, api_key, config) as model, aclosing(open_judge(config)) as judge:
        answer = await ask(model, [{"role": "user", "content": first_message(task)}], config)
        candidate = candidate_source(task, answer)
        result = await judge.evaluate(task, candidate, num_correct_trials=config.feedback_trials, use_cache=True)
    rewards = {"kernel_eval": result.raw_reward, "correct": float(result.correct)}
    return {
        "turns": 1,
        "correct": result.correct,
        "reward": result.raw_reward,
        "fault": result.fault,
        "rewards": rewards,
    }
