"""The rewards of a session by its task's specification, from all their sources.

Invariant: an outage raises `RewardFailed` and is never a number. The hidden files come into the working folder only
after every process of the agent has ended, over whatever stands in their place.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weir.agents.agent_task import AgentTask, RewardSpec
from weir.agents.command.enclosure import Enclosure
from weir.agents.command.limits import CommandEnd
from weir.agents.command.session_folder import SessionFolder, read_beneath, remove_beneath, write_beneath
from weir.agents.command.watch import Watch
from weir.agents.config import AgentsConfig
from weir.agents.errors import RewardFailed
from weir.agents.rewards.command import command_reward
from weir.agents.rewards.function import function_reward
from weir.agents.rewards.judge_model import judge_reward
from weir.agents.rewards.kernel import kernel_reward
from weir.agents.rewards.reward_model import http_reward

MOST_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """What a session left; the argument of reward functions.

    Attributes:
        task: Its task.
        session_id: Its id.
        folder: Its folders; read agents' files by `SessionResult.read`, which follows no symlink.
        end: How the agent's command ended.
        output: The file with what it printed.
    """

    task: AgentTask
    session_id: str
    folder: SessionFolder
    end: CommandEnd
    output: Path

    def read(self, name: str) -> str | None:
        """A file of the working folder, up to 1 MiB; None where there is no such regular file."""
        content = read_beneath(self.folder.work, name, MOST_ANSWER_BYTES)
        return None if content is None else content.decode(errors="replace")

    def answer(self, spec: RewardSpec) -> str:
        """The answer that a reward is about: a file, or the end of what the agent printed; empty without one."""
        return self.end.tail if spec.answer is None else self.read(spec.answer) or ""


class Rewarder:
    """Computes the rewards of one session."""

    def __init__(
        self, config: AgentsConfig, enclosure: Enclosure, watch: Watch, environment: Mapping[str, str], work: str
    ) -> None:
        self._config, self._enclosure, self._watch = config, enclosure, watch
        self._environment, self._work = environment, work

    async def rewards(self, result: SessionResult) -> dict[str, float]:
        """All rewards by name, one after the other. Raises `RewardFailed`."""
        await asyncio.to_thread(place_hidden_files, result)
        return {
            name: _mapped(await self._reward(name, spec, result), spec) for name, spec in result.task.rewards.items()
        }

    async def _reward(self, name: str, spec: RewardSpec, result: SessionResult) -> float:
        if spec.command is not None:
            contained = (self._config, self._enclosure, self._watch, self._environment, self._work)
            return await command_reward(name, spec, result.folder, *contained)
        if spec.function is not None:
            return await function_reward(name, spec.function, result, spec.timeout_s)
        if spec.kernel is not None:
            return await kernel_reward(name, result.task, result.read(spec.kernel), self._config)
        key = None if spec.judge_key_variable is None else os.environ.get(spec.judge_key_variable)
        if spec.url is not None:
            return await http_reward(name, spec, result.task, result.session_id, result.answer(spec), key)
        return await judge_reward(name, spec, result.task.prompt, result.answer(spec), key)


def place_hidden_files(result: SessionResult) -> None:
    """Remove what the task says, and put the hidden files into the working folder. Raises `RewardFailed`."""
    task, work, uid = result.task, result.folder.work, result.folder.uid
    for name in task.removed:
        remove_beneath(work, name)
    try:
        if task.hidden_folder is not None:
            top = Path(task.hidden_folder)
            for path in sorted(path for path in top.rglob("*") if path.is_file()):
                write_beneath(work, str(path.relative_to(top)), path.read_bytes(), uid)
        for name, text in task.hidden.items():
            write_beneath(work, name, text.encode(), uid)
    except OSError as error:
        raise RewardFailed(f"the hidden files of task {task.task_id} could not be placed: {error}") from error


def _mapped(value: float, spec: RewardSpec) -> float:
    """The value mapped from low..high to 0..1, clipped; as it is without bounds."""
    if spec.low is None or spec.high is None:
        return value
    return min(1.0, max(0.0, (value - spec.low) / (spec.high - spec.low)))
