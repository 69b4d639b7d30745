"""Evaluates the served weights on held-out tasks with any agent: sessions that no round trains on, with their rewards.

Invariants: an evaluation is made of sessions with `evaluation` in their metadata, and of their rewards in the store; a
session's version is the one that engines reported for its calls. A mean leaves no failed session out in silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weir.agents.agent_task import Task
from weir.agents.config import AgentsConfig
from weir.agents.control import ControlClient
from weir.agents.errors import AgentsError
from weir.agents.heldout import answer_once
from weir.agents.kernel_agent import solve
from weir.agents.runner import Agent, SessionOutcome, run_groups


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """The rewards of one evaluation, by name, and what failed."""

    name: str
    version: str | None  # served when it began
    ended_at: str | None = None  # served when it ended; another one: weights were published meanwhile
    rewards: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def is_of_one_version(self) -> bool:
        """Whether no weights were published during the evaluation."""
        return self.version is None or self.version == self.ended_at

    def mean(self, reward: str) -> tuple[float, float]:
        """Mean of a reward, and the standard error of the mean."""
        values = self.rewards[reward]
        mean = math.fsum(values) / len(values)
        if len(values) < 2:
            return mean, math.nan
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return mean, math.sqrt(variance / len(values))


async def evaluate(
    name: str,
    tasks: Sequence[Task],
    agent: Agent,
    control: ControlClient,
    config: AgentsConfig,
    *,
    samples: int,
    temperature: float | None,
    seeds: Sequence[int],
    on_session: Callable[[SessionOutcome], None] | None = None,
) -> Evaluation:
    """Run `samples` sessions of each task for each seed. The example agent answers once, and is judged at once.

    Raises `AgentsError` where every session failed, or a session has no reward.
    """
    judged = answer_once if agent is solve else agent
    changes: dict[str, object] = {"samples": samples}
    if temperature is not None:
        changes["temperature"] = temperature
    found = Evaluation(name=name, version=await control.version())
    for seed in seeds:
        settings = config.model_copy(update={**changes, "sampling_seed": seed})
        noted = {"evaluation": name, "seed": seed, "temperature": settings.temperature, "version": found.version}
        async for group in run_groups(
            tasks,
            judged,
            control,
            settings,
            num_groups=len(tasks),
            trainable=False,
            metadata=noted,
            on_session=on_session,
        ):
            for session in group.sessions:
                _add(found, session)
    found.ended_at = await control.version()
    if not found.rewards:
        raise AgentsError(f"every session of the evaluation failed; the first: {found.failures[0]}")
    return found


def _add(found: Evaluation, session: SessionOutcome) -> None:
    rewards = session.info.get("rewards", {})
    if session.failure is not None:
        found.failures.append(f"{session.failure}: {session.error}")
    elif not rewards:
        raise AgentsError(
            f"the session of task {session.task_id} has no reward: give its task [rewards.NAME], or return "
            '{"rewards": {"name": 0.5}} from the agent'
        )
    for name, value in rewards.items():
        found.rewards.setdefault(name, []).append(value)
