"""`weir tasks check|import`: which tasks can be judged; KernelBench's folders as a file of tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from weir.scripts.launch.preflight import look_for_judge, open_judge
from weir.scripts.launch.settings import ConfigOption, load_settings

if TYPE_CHECKING:
    from weir.kernel_eval.client import KernelTask, TaskCheck
    from weir.scripts.launch.settings import Settings

AT_ONCE = 16
LevelOption = Annotated[list[int] | None, typer.Option(min=1, max=4, help="KernelBench levels; default: all.")]
DivideOption = Annotated[int, typer.Option(min=1, help="Divide KernelBench's sizes of 32 and more by this.")]


def check(
    paths: Annotated[list[Path], typer.Argument(help="Task files, folders of them, KernelBench folders.")],
    level: LevelOption = None,
    divide_sizes: DivideOption = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the tasks that can be judged here, *.jsonl.")] = None,
    config: ConfigOption = None,
) -> None:
    """List tasks that cannot be judged, and why.

    Exits with 1 if there are any. References run in the kernel-evaluation server's sandbox, which must be running.
    """
    from weir.agents.tasks import write_tasks
    from weir.scripts.launch.preflight import require_folder

    settings = load_settings(config)
    if out is not None:
        require_folder(out)
    tasks = [task for path in paths for task in _read(path, level, divide_sizes)]
    look_for_judge(settings)
    checks = asyncio.run(_check_all(tasks, settings))
    for task, found in zip(tasks, checks, strict=True):
        typer.echo(_json(task, found) if as_json else _line(task, found))
    good = [task for task, found in zip(tasks, checks, strict=True) if found.judgeable]
    if out is not None:
        write_tasks(out, good)
    if not as_json:
        typer.echo(f"{len(good)} of {len(tasks)} tasks can be judged")
    if len(good) < len(tasks):
        raise typer.Exit(1)


def import_(
    folder: Annotated[Path, typer.Argument(help="A checkout of KernelBench, or one of its levels.")],
    out: Annotated[Path, typer.Argument(help="Output file of tasks, *.jsonl.")],
    level: LevelOption = None,
    divide_sizes: DivideOption = 1,
) -> None:
    """Write KernelBench's problems as a file of tasks for weir run."""
    from weir.agents.kernelbench import LEVELS, load_kernelbench
    from weir.agents.tasks import write_tasks
    from weir.scripts.launch.preflight import require_folder

    require_folder(out)
    tasks = load_kernelbench(folder, levels=level or LEVELS, divide_sizes=divide_sizes)
    write_tasks(out, tasks)
    typer.echo(f"{len(tasks)} tasks in {out}")


def _read(path: Path, levels: Sequence[int] | None, divide_sizes: int) -> list[KernelTask]:
    from weir.agents.kernelbench import LEVELS, is_kernelbench, load_kernelbench
    from weir.agents.tasks import load_tasks

    if is_kernelbench(path):
        return load_kernelbench(path, levels=levels or LEVELS, divide_sizes=divide_sizes)
    return load_tasks(path)


async def _check_all(tasks: Sequence[KernelTask], settings: Settings) -> list[TaskCheck]:
    client = open_judge(settings)
    slots = asyncio.Semaphore(AT_ONCE)

    with _progress(len(tasks)) as advance:

        async def check_one(task: KernelTask) -> TaskCheck:
            async with slots:
                found = await client.check_task(task)
            advance()
            return found

        try:
            return await asyncio.gather(*(check_one(task) for task in tasks))
        finally:
            await client.aclose()


@contextlib.contextmanager
def _progress(num_tasks: int) -> Iterator[Callable[[], None]]:
    """A bar on stderr, if it is a terminal; yields the function that counts one more task."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("checking tasks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("checking", total=num_tasks)
        yield lambda: progress.advance(bar)


def _json(task: KernelTask, found: TaskCheck) -> str:
    return msgspec.json.encode({"task_id": task.task_id, **msgspec.to_builtins(found)}).decode()


def _line(task: KernelTask, found: TaskCheck) -> str:
    seconds = "" if found.call_s is None else f"  {found.call_s * 1000:.1f} ms a call"
    if found.problem is None:
        return f"{task.task_id}: ok{seconds}"
    return f"{task.task_id}: {found.problem.value}{seconds}: {found.message}"
