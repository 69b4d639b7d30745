"""`weir eval`: the served weights on a held-out split, stored for `weir report`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.resolve import agents_config
from weir.scripts.launch.settings import ConfigOption, load_settings

if TYPE_CHECKING:
    from weir.agents.agent_task import Task
    from weir.agents.config import AgentsConfig
    from weir.agents.evaluation import Evaluation
    from weir.agents.runner import Agent


def evaluate(
    tasks: Annotated[
        Path, typer.Option(help="Folder (or file) of tasks: *.toml, *.jsonl, *.py in KernelBench's form.")
    ],
    split: Annotated[str, typer.Option(help="Which tasks: train, heldout or all.")] = "heldout",
    name: Annotated[str, typer.Option(help="Name of the evaluation; its curve in the report has it.")] = "heldout",
    samples: Annotated[int, typer.Option(min=1, help="Sessions of each task, for each seed.")] = 4,
    temperature: Annotated[float | None, typer.Option(min=0, help="Temperature; default: agents.temperature.")] = None,
    seeds: Annotated[str, typer.Option(help="Sampling seeds, e.g. 0,1,2.")] = "0",
    version: Annotated[
        str | None, typer.Option(help="The version that has to be served; another one is refused.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Import path of the agent, module:function.")] = None,
    agent_command: Annotated[str | None, typer.Option(help="Command line of an agent.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: ConfigOption = None,
) -> None:
    """Evaluate the served weights on held-out tasks.

    The sessions and their rewards are stored; no round trains on them. `weir report` shows the curve over versions.
    """
    from weir.agents.agent_task import load_all_tasks
    from weir.scripts.cli.commands.run import open_agent, tasks_of_split
    from weir.scripts.launch.continuous import describe

    chosen = tasks_of_split(load_all_tasks(tasks), split, tasks)
    settings = load_settings(config)
    given = {"agent": agent, "command": agent_command}
    sys.path.append(str(Path.cwd()))
    options = agents_config(settings, {key: value for key, value in given.items() if value is not None})
    found = asyncio.run(
        _evaluate(name, chosen, open_agent(options), options, samples, temperature, _numbers(seeds), version)
    )
    if json_:
        typer.echo(json.dumps(_as_json(found)))
    else:
        typer.echo(describe(found))


async def _evaluate(
    name: str,
    tasks: list[Task],
    agent: Agent,
    config: AgentsConfig,
    samples: int,
    temperature: float | None,
    seeds: list[int],
    version: str | None,
) -> Evaluation:
    from weir.agents.control import ControlClient
    from weir.agents.evaluation import evaluate as run_evaluation
    from weir.scripts.launch.errors import UsageError

    assert config.proxy_url is not None and config.control_key is not None
    async with ControlClient(config.proxy_url, config.control_key.get_secret_value(), config) as control:
        if version is not None and (served := await control.version()) != version:
            raise UsageError(
                f"--version {version}: version {served} is served; `weir rollback {version}` publishes it again"
            )
        return await run_evaluation(
            name, tasks, agent, control, config, samples=samples, temperature=temperature, seeds=seeds
        )


def _numbers(seeds: str) -> list[int]:
    from weir.scripts.launch.errors import UsageError

    try:
        return [int(seed) for seed in seeds.split(",")]
    except ValueError as error:
        raise UsageError(f"--seeds {seeds}: expected whole numbers with commas between them, such as 0,1,2") from error


def _as_json(found: Evaluation) -> dict[str, object]:
    means = {name: found.mean(name) for name in found.rewards}
    return {
        "evaluation": found.name,
        "version": found.version,
        "ended_at_version": found.ended_at,
        "rewards": {
            name: {
                "mean": mean,
                "standard_error": None if error != error else error,
                "sessions": len(found.rewards[name]),
            }
            for name, (mean, error) in means.items()
        },
        "failed": len(found.failures),
    }
