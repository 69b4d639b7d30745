"""What commands need of the agents that the settings name: the agent itself, and the tasks of a split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from weir.scripts.launch.errors import UsageError

if TYPE_CHECKING:
    from weir.agents.agent_task import Task
    from weir.agents.config import AgentsConfig
    from weir.agents.runner import Agent


def tasks_of_split(tasks: list[Task], split: str, place: Path) -> list[Task]:
    """The tasks of a split, at least one. Raises UsageError where there is none, or no such split."""
    if split not in ("train", "heldout", "all"):
        raise UsageError(f"--split {split}: expected train, heldout or all")
    chosen = [task for task in tasks if split in ("all", task.split)]
    if not chosen:
        raise UsageError(f"no task of the split {split} in {place}; choose another --split or folder")
    return chosen


def open_agent(options: AgentsConfig) -> Agent:
    """The command or the function that the settings name; says aloud where a command is not fully contained."""
    from weir.agents.command_agent import CommandAgent
    from weir.agents.runner import import_agent

    if options.command is None:
        return import_agent(options.agent)
    agent = CommandAgent(options)
    enclosure = agent.enclosure
    if not enclosure.has_mounts:
        typer.echo(
            f"warning: agents run at the sandbox level {enclosure.level}, network: {enclosure.network}; install "
            "bubblewrap (and allow user namespaces) to contain them fully",
            err=True,
        )
    return agent
