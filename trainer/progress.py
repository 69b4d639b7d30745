"""Progress of long work: a bar on a terminal, elsewhere about ten lines of plain text for each piece of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int, str], None]
PLAIN_LINES = 10


@contextmanager
def progress(console: Console, label: str, total: int) -> Iterator[Advance]:
    """Yield `advance(steps, note)`, which reports further steps of `total`."""
    if console.is_terminal:
        with _bar(console, label, total) as advance:
            yield advance
    else:
        yield _plain(console, label, total)


@contextmanager
def _bar(console: Console, label: str, total: int) -> Iterator[Advance]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console, transient=True) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda steps, note: bar.update(task, advance=steps, note=note)


def _plain(console: Console, label: str, total: int) -> Advance:
    done = 0

    def advance(steps: int, note: str) -> None:
        nonlocal done
        before, done = done, done + steps
        if done * PLAIN_LINES // max(total, 1) > before * PLAIN_LINES // max(total, 1):
            console.print(f"{label}: {done}/{total} {note}".rstrip(), highlight=False)

    return advance
