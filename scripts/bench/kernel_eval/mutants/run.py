"""`weir bench kernel-eval --mutants FOLDER`: what a kernel could leave out of the tasks of a folder, and still pass.

A mutant is a task's own code with one operator changed: a bound left out, a comparison that is always true, a sum
without its last element. It is asked what an evaluation asks of a candidate, with new secrets each time. Most of those
that pass change nothing (a bound that nothing reaches, a guard beside another one); a person reads the others, each of
which is a kernel that would earn a reward. Tasks are Python files of KernelBench's form; of a file with a kernel, too,
the task. The corpus of this repository is `tests/cheats/reported` and `tests/kernel_eval/honest`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from weir.scripts.launch.errors import UsageError

_TASKS_OF_ONE = 8  # of one process
_WORKER = "weir.scripts.bench.kernel_eval.mutants.worker"


def tasks_of(folder: Path) -> list[Path]:
    """The files with a task, in order. Raises `UsageError` if there is none."""
    found = [path for path in sorted(folder.rglob("*.py")) if _is_task(path.read_text())]
    if not found:
        raise UsageError(f"{folder} holds no task: a Python file with a class Model and get_inputs()")
    return found


def _is_task(source: str) -> bool:
    return "class Model(" in source and "def get_inputs(" in source


def main(folder: Path, num_evaluations: int) -> None:
    """Print each mutant that an evaluation did not tell from its task, then the figures."""
    paths = [str(path) for path in tasks_of(folder)]
    parts = [paths[start : start + _TASKS_OF_ONE] for start in range(0, len(paths), _TASKS_OF_ONE)]
    figures = dict.fromkeys(("tasks", "without", "mutants", "passing", "passing_always", "changing_nothing"), 0)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for part in threads.map(lambda part: list(_ask(part, num_evaluations)), parts):
            for found in part:
                _print(found, num_evaluations)
                _count(found, num_evaluations, figures)
    print(json.dumps(figures))


def _ask(paths: list[str], num_evaluations: int) -> Iterator[dict[str, Any]]:
    """What a process finds out about tasks; if one ends it, another process continues behind that one."""
    left = list(paths)
    while left:
        command = [sys.executable, "-m", _WORKER, str(num_evaluations), *left]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        yield from found
        left = left[len(found) :]
        if left:
            ended = left.pop(0)
            yield {"task": ended, "error": f"its process ended with status {done.returncode}: {done.stderr[-300:]}"}


def _passes(mutant: dict[str, Any]) -> int:
    """How many evaluations would reward it."""
    return sum(mutant["told"].get(told, 0) for told in ("near", "equal"))


def _print(found: dict[str, Any], num_evaluations: int) -> None:
    if "error" in found:
        print(f"{found['task']}: {found['error']}")
    for mutant in found.get("mutants", ()):
        passing, call = _passes(mutant), "" if mutant["call"] is None else f" #{mutant['call']}"
        if passing:
            same = ", with the same answers" if not mutant["told"].get("near") else ""
            what = f"{mutant['operator']}{call}: {mutant['change']}"
            print(f"{found['task']}:{mutant['line']} {what}: passes {passing} of {num_evaluations}{same}")
            print(f"    {mutant['source']}")


def _count(found: dict[str, Any], num_evaluations: int, figures: dict[str, int]) -> None:
    figures["tasks"] += 1
    figures["without"] += "error" in found
    for mutant in found.get("mutants", ()):
        passing = _passes(mutant)
        figures["mutants"] += 1
        figures["passing"] += passing > 0
        figures["passing_always"] += passing == num_evaluations
        figures["changing_nothing"] += passing == num_evaluations == mutant["told"].get("equal", 0)
