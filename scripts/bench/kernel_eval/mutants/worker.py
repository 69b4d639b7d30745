"""`python -m …mutants.worker EVALUATIONS TASK…`: the mutants of tasks, a line of JSON for each task.

A process of its own, since a mutant may end it. A line has the task's path and its mutants, each with what evaluations
showed of it; or the reason why there are none.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.scripts.bench.kernel_eval.corpus import task_and_candidate
from weir.scripts.bench.kernel_eval.mutants.evaluation import Evaluation
from weir.scripts.bench.kernel_eval.mutants.mode import Mutant


def mutants_of(source: str, num_evaluations: int) -> list[dict[str, Any]]:
    """Each mutant of a task, and how many evaluations showed what. Raises as `Reference` does."""
    told: dict[Mutant, Counter[str]] = {}
    for _ in range(num_evaluations):
        evaluation = Evaluation(source)
        told = told or {mutant: Counter() for mutant in evaluation.mutants()}
        for mutant, shown in told.items():
            shown[evaluation.told(mutant).value] += 1
    lines = source.splitlines()
    return [
        {**mutant._asdict(), "source": lines[mutant.line - 1].strip(), "told": dict(shown)}
        for mutant, shown in told.items()
    ]


def _task(path: Path) -> str:
    source = path.read_text()
    return task_and_candidate(source)[0] if "class ModelNew" in source else source


def main(num_evaluations: int, paths: list[str]) -> None:
    """Print the line of each task; what tasks print goes to the standard error."""
    torch.set_num_threads(1)
    lines = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for path in paths:
            found: dict[str, Any] = {"task": path}
            try:
                found["mutants"] = mutants_of(_task(Path(path)), num_evaluations)
            except (InvalidReference, UnsupportedReference) as error:
                found["error"] = str(error)
            print(json.dumps(found), file=lines, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
