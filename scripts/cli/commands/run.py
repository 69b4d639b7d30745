"""`weir run`: groups of sessions of an agent over a task folder, against a proxy that is running."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.resolve import agents_config
from weir.scripts.launch.settings import ConfigOption, load_settings

if TYPE_CHECKING:
    from weir.agents.config import AgentsConfig
    from weir.agents.runner import Agent, RunSummary, SessionOutcome
    from weir.kernel_eval.client import KernelTask

PLAIN_LINE_EVERY_S = 10.0
FAILURE_CHARACTERS = 300  # characters of a server's message


def run(
    tasks: Annotated[Path, typer.Option(help="Folder (or file) of tasks: *.py in KernelBench's form, *.jsonl.")],
    samples: Annotated[int | None, typer.Option(min=1, help="Sessions per group.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Concurrent sessions.")] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Most answers of an agent.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Groups to run; default: each task once.")] = None,
    split: Annotated[str, typer.Option(help="Which tasks: train, heldout or all.")] = "train",
    agent: Annotated[str | None, typer.Option(help="Import path of the agent, module:function.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order of the tasks.")] = 0,
    config: ConfigOption = None,
) -> None:
    """Run an agent's sessions over a folder of tasks.

    Each task gets one group of --samples sessions, through a running proxy. Answers are judged later, by a round.
    """
    from weir.agents.runner import import_agent
    from weir.agents.tasks import load_tasks
    from weir.scripts.launch.errors import CommandError, UsageError

    if split not in ("train", "heldout", "all"):
        raise UsageError(f"--split {split}: expected train, heldout or all")
    chosen = [task for task in load_tasks(tasks) if split in ("all", task.split)]
    if not chosen:
        raise UsageError(f"no task of the split {split} in {tasks}; choose another --split or folder")
    given = {"samples": samples, "concurrency": concurrency, "turns": turns, "agent": agent}
    settings = load_settings(config)
    sys.path.append(str(Path.cwd()))  # the agent's module may be in this folder; last, so that it shadows nothing
    options = agents_config(settings, {name: value for name, value in given.items() if value is not None})
    summary = asyncio.run(_run(chosen, import_agent(options.agent), options, limit or len(chosen), seed))
    typer.echo(_describe(summary))
    if summary.first_error is not None:
        first = " ".join(summary.first_error.split())[:FAILURE_CHARACTERS]
        if summary.failures.total() == summary.sessions:
            raise CommandError(f"every session failed; the first: {first}")
        typer.echo(f"the first failure: {first}", err=True)


async def _run(tasks: list[KernelTask], agent: Agent, config: AgentsConfig, num_groups: int, seed: int) -> RunSummary:
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
    return (
        f"{summary.groups} groups, {summary.sessions} sessions, {summary.calls} calls in {summary.seconds:.1f} s; "
        f"{summary.correct} sessions saw a correct answer; failed: {failures or 'none'}"
    )
