"""`weir run` and `weir eval`: sessions of an agent over a task folder, against a proxy that is running."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from weir.scripts.launch.agents import open_agent, tasks_of_split
from weir.scripts.launch.resolve import agents_config
from weir.scripts.launch.settings import ConfigOption, load_settings

if TYPE_CHECKING:
    from weir.agents.agent_task import Task
    from weir.agents.config import AgentsConfig
    from weir.agents.evaluation import Evaluation
    from weir.agents.runner import Agent, RunSummary, SessionOutcome
    from weir.scripts.launch.settings import Settings

T = TypeVar("T")
PLAIN_LINE_EVERY_S = 10.0
FAILURE_CHARACTERS = 300  # characters of a server's message


def run(
    tasks: Annotated[
        Path, typer.Option(help="Folder (or file) of tasks: *.toml, *.jsonl, *.py in KernelBench's form.")
    ],
    samples: Annotated[int | None, typer.Option(min=1, help="Sessions per group.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Concurrent sessions.")] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Most answers of an agent.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Groups to run; default: each task once.")] = None,
    split: Annotated[str, typer.Option(help="Which tasks: train, heldout or all.")] = "train",
    agent: Annotated[str | None, typer.Option(help="Import path of the agent, module:function.")] = None,
    agent_command: Annotated[
        str | None,
        typer.Option(help="Command line of an agent, e.g. 'my-agent --task {prompt}'; one process a session."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order of the tasks.")] = 0,
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Keep groups coming, as many as the trainer can use; resume after a stop."),
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="State file of --continuous; default: runs/continuous.jsonl in the store's folder."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Run an agent's sessions over a folder of tasks.

    Each task gets one group of --samples sessions, through a running proxy. Answers are judged later, by a round;
    tasks with rewards of their own are rewarded at a session's end.
    """
    from weir.agents.agent_task import load_all_tasks
    from weir.scripts.launch.errors import CommandError

    every = load_all_tasks(tasks)
    chosen = tasks_of_split(every, split, tasks)
    given = {"samples": samples, "concurrency": concurrency, "turns": turns, "agent": agent, "command": agent_command}
    settings = load_settings(config)
    sys.path.append(str(Path.cwd()))  # the agent's module may be in this folder; last, so that it shadows nothing
    options = agents_config(settings, {name: value for name, value in given.items() if value is not None})
    chosen_agent = open_agent(options)
    _warn_of_rewards(chosen, settings)
    if continuous:
        heldout = [task for task in every if task.split == "heldout" and split != "heldout"]
        summary = _run_continuously(chosen, heldout, chosen_agent, options, settings, limit, seed, state)
    else:
        summary = _run_stoppable(_run(chosen, chosen_agent, options, limit or len(chosen), seed))
    typer.echo(_describe(summary))
    if summary.first_error is not None:
        first = " ".join(summary.first_error.split())[:FAILURE_CHARACTERS]
        if summary.sessions and summary.failures.total() == summary.sessions:
            raise CommandError(f"every session failed; the first: {first}")
        typer.echo(f"the first failure: {first}", err=True)


def _run_stoppable(sessions: Coroutine[Any, Any, T]) -> T:
    """Run sessions to their end. SIGTERM stops them as Ctrl-C does: those that run are finished as failed."""

    async def until_stopped() -> T:
        running = asyncio.ensure_future(sessions)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        return await running

    try:
        return asyncio.run(until_stopped())
    except asyncio.CancelledError as error:
        typer.echo("stopped by SIGTERM; the sessions that ran are finished as failed", err=True)
        raise typer.Exit(128 + signal.SIGTERM) from error


def _run_continuously(
    tasks: list[Task],
    heldout: list[Task],
    agent: Agent,
    options: AgentsConfig,
    settings: Settings,
    num_groups: int | None,
    seed: int,
    state: Path | None,
) -> RunSummary:
    from weir.agents.continuous.journal import RunJournal
    from weir.scripts.launch.continuous import ContinuousRun, run_continuously

    file = state or settings.store.folder / "runs" / "continuous.jsonl"
    journal = RunJournal(file, tasks, seed=seed, samples=options.samples)
    started = time.monotonic()
    run = ContinuousRun(
        tasks=tasks,
        heldout=heldout,
        agent=agent,
        config=options,
        seed=seed,
        num_groups=num_groups,
        say=lambda text: typer.echo(text, err=True),
    )
    try:
        summary = _run_stoppable(run_continuously(run, settings, journal))
    finally:
        journal.close()
    summary.seconds = time.monotonic() - started
    return summary


def _warn_of_rewards(tasks: list[Task], settings: Settings) -> None:
    """Say which rewards of the tasks no round would train on."""
    named = {name for task in tasks for name in getattr(task, "rewards", {})}
    terms = settings.trainer.reward_terms
    unused = sorted(named - {name for name, term in terms.items() if term.source == "stored"})
    if unused:
        typer.echo(
            f"note: the tasks' rewards {', '.join(unused)} are stored, but rounds use {', '.join(terms)}; to train on "
            f"one, set [trainer.rewards] {unused[0]} = {{ stored = true }}",
            err=True,
        )


async def _run(tasks: list[Task], agent: Agent, config: AgentsConfig, num_groups: int, seed: int) -> RunSummary:
    from weir.agents.control import ControlClient
    from weir.agents.runner import RunSummary, run_groups

    assert config.proxy_url is not None and config.control_key is not None
    summary = RunSummary()
    started = time.monotonic()
    async with ControlClient(config.proxy_url, config.control_key.get_secret_value(), config) as control:
        with _progress(num_groups * config.samples) as on_session:
            groups = run_groups(tasks, agent, control, config, num_groups=num_groups, seed=seed, on_session=on_session)
            async for group in groups:
                summary.add(group)
    summary.seconds = time.monotonic() - started
    return summary


@contextmanager
def _progress(num_sessions: int) -> Iterator[Callable[[SessionOutcome], None]]:
    """Show sessions as they end: a bar on a terminal, occasional plain lines elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines(num_sessions)
        return
    note = TextColumn("{task.fields[note]}")
    columns = (TextColumn("sessions"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), note)
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("sessions", total=num_sessions, note="")
        failed = 0

        def on_session(outcome: SessionOutcome) -> None:
            nonlocal failed
            failed += outcome.failure is not None
            progress.update(bar, advance=1, note=f"{failed} failed" if failed else "")

        yield on_session


def _plain_lines(num_sessions: int) -> Callable[[SessionOutcome], None]:
    ended = failed = 0
    last_line = time.monotonic()

    def on_session(outcome: SessionOutcome) -> None:
        nonlocal ended, failed, last_line
        ended += 1
        failed += outcome.failure is not None
        if ended == num_sessions or time.monotonic() - last_line >= PLAIN_LINE_EVERY_S:
            last_line = time.monotonic()
            typer.echo(f"{ended}/{num_sessions} sessions, {failed} failed", err=True)

    return on_session


def _describe(summary: RunSummary) -> str:
    failures = ", ".join(f"{count} {kind}" for kind, count in summary.failures.most_common())
    parts = [f"{summary.groups} groups, {summary.sessions} sessions"]
    if summary.sandboxes:
        parts[0] += f" in {summary.seconds:.1f} s"
        parts.append("sandbox: " + ", ".join(f"{count} {level}" for level, count in summary.sandboxes.most_common()))
    else:
        parts[0] += f", {summary.calls} calls in {summary.seconds:.1f} s"
        parts.append(f"{summary.correct} sessions saw a correct answer")
    parts += [f"reward {name}: mean {sum(got) / len(got):.3f} of {len(got)}" for name, got in summary.rewards.items()]
    if summary.limits:
        parts.append("ended by a limit: " + ", ".join(f"{n} {limit}" for limit, n in summary.limits.most_common()))
    return "; ".join([*parts, f"failed: {failures or 'none'}"])


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
    from weir.scripts.launch.continuous import describe

    chosen = tasks_of_split(load_all_tasks(tasks), split, tasks)
    settings = load_settings(config)
    given = {"agent": agent, "command": agent_command}
    sys.path.append(str(Path.cwd()))
    options = agents_config(settings, {key: value for key, value in given.items() if value is not None})
    found = _run_stoppable(
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
                "standard_error": None if math.isnan(error) else error,
                "sessions": len(found.rewards[name]),
            }
            for name, (mean, error) in means.items()
        },
        "failed": len(found.failures),
    }
