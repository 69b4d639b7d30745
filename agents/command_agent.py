"""An agent that is a command line: one process a session, in a folder of its own, contained, rewarded at its end.

Invariants: the agent reaches the proxy and nothing else, as far as the enclosure allows (`command/enclosure.py`); when
a session ends, no process of it is left. An outage is no reward: a session whose agent made no call, whose setup failed
or whose reward could not be computed ends as failed. An exit code other than 0 and an exceeded limit are the agent's
own; they are recorded, and the session is rewarded.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
from typing import Any
from urllib.parse import urlsplit

from weir.agents.agent_task import AgentTask, Task
from weir.agents.command.contained import SOCKET, Command, run_contained
from weir.agents.command.enclosure import FIRST_UID, HOME, NUM_UIDS, WORK, Enclosure, choose_enclosure, inside_user
from weir.agents.command.environment import base_environment, model_environment
from weir.agents.command.limits import CommandEnd, CommandLimits
from weir.agents.command.placeholders import check_places, fill, split_command, takes_prompt
from weir.agents.command.relay import Relay
from weir.agents.command.session_folder import PROMPT, SessionFolder, write_beneath
from weir.agents.command.watch import Watch
from weir.agents.config import AgentsConfig
from weir.agents.errors import AgentFailed, CommandRefused, SetupFailed
from weir.agents.kernel_agent import first_message
from weir.agents.rewards.sources import Rewarder, SessionResult

AGENT_OUTPUT, SETUP_OUTPUT = "output.txt", "setup.txt"


class CommandAgent:
    """Runs `config.command` for a session; an instance is an `Agent` of the runner."""

    def __init__(self, config: AgentsConfig) -> None:
        """Choose the enclosure. Raises `CommandRefused` or `AgentSandboxUnavailable`."""
        assert config.command is not None and config.command_folder is not None
        self._words = split_command(config.command)
        for value in config.command_environment.values():
            check_places(value)
        if shutil.which(self._words[0]) is None:
            raise CommandRefused(f"there is no program {self._words[0]!r} on PATH; give its path, or install it")
        self.enclosure: Enclosure = choose_enclosure(config, self._words)
        self._root = config.command_folder.absolute()
        self._watch = Watch()
        self._uids = itertools.cycle(range(FIRST_UID, FIRST_UID + NUM_UIDS))
        for _ in range(random.randrange(NUM_UIDS)):
            next(self._uids)

    async def __call__(self, task: Task, base_url: str, api_key: str, config: AgentsConfig) -> dict[str, Any]:
        """Run one session; returns its info. Raises `AgentsError` where there is nothing to reward."""
        session = _Session(self, task, base_url, api_key, config)
        await asyncio.to_thread(session.prepare)
        try:
            return await session.run(self._watch)
        finally:
            if config.command_keep == "output":
                await asyncio.shield(asyncio.to_thread(session.folder.remove_agents_files))

    def new_folder(self, session_id: str) -> SessionFolder:
        """The folder of a session, not made yet."""
        return SessionFolder(self._root / session_id, next(self._uids) if self.enclosure.own_user else None)

    @property
    def words(self) -> list[str]:
        """The words of the command line."""
        return self._words


class _Session:
    """One session of a command."""

    def __init__(self, agent: CommandAgent, task: Task, base_url: str, api_key: str, config: AgentsConfig) -> None:
        url = urlsplit(base_url)
        parts = url.path.strip("/").split("/")
        self.session_id = parts[parts.index("s") + 1] if "s" in parts[:-1] else "session"
        self.folder = agent.new_folder(self.session_id)
        self._agent, self._task, self._config = agent, task, config
        self._origin, self._path, self._key = f"{url.scheme}://{url.netloc}", url.path, api_key
        self._enclosure = agent.enclosure
        self._work, self._home = (
            (WORK, HOME) if agent.enclosure.has_mounts else map(str, (self.folder.work, self.folder.home))
        )

    def prepare(self) -> None:
        """Make the folder with the task's files. Raises `TaskError` for a path outside of it."""
        prompt = self._task.prompt if isinstance(self._task, AgentTask) else first_message(self._task)
        self.folder.make(prompt, inside_uid=inside_user(self.folder.uid), inside_home=self._home)
        if isinstance(self._task, AgentTask):
            if self._task.folder is not None:
                shutil.copytree(self._task.folder, self.folder.work, symlinks=True, dirs_exist_ok=True)
            for name, text in self._task.files.items():
                write_beneath(self.folder.work, name, text.encode())
        if not self._enclosure.has_mounts:
            (self.folder.home / "tmp").mkdir()
        self.folder.give_away()

    async def run(self, watch: Watch) -> dict[str, Any]:
        """Setup, agent, rewards."""
        own, path = self._environment(), self.folder.path
        task = self._task if isinstance(self._task, AgentTask) else None
        if task is not None and task.setup is not None:
            await self._set_up(task, task.setup, own, watch)
        async with Relay(self._origin, self.folder.run / SOCKET if self._enclosure.has_mounts else None) as relay:
            limits = CommandLimits.of(self._config, self._config.command_timeout_s)
            command = self._command(relay, own)
            end = await run_contained(command, self.folder, self._enclosure, limits, watch, path / AGENT_OUTPUT, relay)
        _check_calls(end, relay, self._agent.words[0])
        info = self._info(end)
        if task is not None and task.rewards:
            result = SessionResult(
                task=task, session_id=self.session_id, folder=self.folder, end=end, output=path / AGENT_OUTPUT
            )
            rewarder = Rewarder(self._config, self._enclosure, watch, own, self._work)
            info["rewards"] = await rewarder.rewards(result)
        return info

    async def _set_up(self, task: AgentTask, setup: str, own: dict[str, str], watch: Watch) -> None:
        output = self.folder.path / SETUP_OUTPUT
        limits = CommandLimits.of(self._config, task.setup_timeout_s)
        command = Command(argv=("/bin/sh", "-c", setup), environment=own)
        end = await run_contained(command, self.folder, self._enclosure, limits, watch, output)
        if end.exit_code != 0:
            why = f"exceeded its limit on {end.ended_by}" if end.ended_by else f"ended with exit code {end.exit_code}"
            raise SetupFailed(f"the setup of task {task.task_id} {why}: {end.tail[-300:]!r}; its output is {output}")

    def _environment(self) -> dict[str, str]:
        temporary = "/tmp" if self._enclosure.has_mounts else f"{self._home}/tmp"
        return base_environment(self._home, temporary)

    def _command(self, relay: Relay, own: dict[str, str]) -> Command:
        base = f"http://127.0.0.1:{relay.port}{self._path}"
        values = {
            "prompt": (self.folder.home / PROMPT).read_text(),
            "prompt_file": f"{self._home}/{PROMPT}",
            "base_url": base,
            "anthropic_base_url": base.removesuffix("/v1"),
            "api_key": self._key,
            "model": self._config.model,
            "work": self._work,
            "task_id": self._task.task_id,
            "session": self.session_id,
            "seed": str(self._config.sampling_seed or 0),
        }
        words = self._agent.words
        further = {name: fill(value, values) for name, value in self._config.command_environment.items()}
        return Command(
            argv=[fill(word, values) for word in words],
            environment=own | model_environment(values) | further,
            stdin=None if takes_prompt(words) else values["prompt_file"],
        )

    def _info(self, end: CommandEnd) -> dict[str, Any]:
        return {
            "exit_code": end.exit_code,
            "ended_by": None if end.ended_by is None else str(end.ended_by),
            "output": str(self.folder.path / AGENT_OUTPUT),
            "output_bytes": end.printed_bytes,
            "sandbox": str(self._enclosure.level),
            "network": self._enclosure.network,
        }


def _check_calls(end: CommandEnd, relay: Relay, program: str) -> None:
    """Raise `AgentFailed` where the agent could not call: that is no behaviour to reward."""
    what = f"exit code {end.exit_code}" if end.ended_by is None else f"ended by its limit on {end.ended_by}"
    if relay.refused:
        raise AgentFailed(f"the proxy refused {relay.refused} connections of {program} ({what}); is it running?")
    if not relay.connections:
        raise AgentFailed(
            f"{program} made no call ({what}); it has to use the base URL in OPENAI_BASE_URL or ANTHROPIC_BASE_URL, or "
            f"{{base_url}} on its command line. It printed: {end.tail[-600:]!r}"
        )
