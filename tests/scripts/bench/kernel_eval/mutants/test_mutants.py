"""`weir bench kernel-eval --mutants`: changes of a task's operators, and which of them an evaluation tells from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from weir.scripts.bench.kernel_eval.mutants.changes import CHANGES, NotHere
from weir.scripts.bench.kernel_eval.mutants.evaluation import Evaluation, Told
from weir.scripts.bench.kernel_eval.mutants.mode import Mutant
from weir.scripts.bench.kernel_eval.mutants.run import main, tasks_of

TASK = """import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 16)

    def forward(self, x):
        y = self.linear(x).clamp(-100.0, 3.0).abs()
        return y.clamp(min=-1.0).sum(-1) * 1.0

def get_inputs():
    return [torch.randn(16, 32)]
"""
_OF_CHANGES = {
    "clamp": [(torch.randn(4, 8), -0.5, 0.5), (torch.randn(4, 8), None, 0.5)],
    "sum": [(torch.randn(4, 8), [1])],
    "max": [(torch.randn(4, 8), 1)],
    "argmax": [(torch.randn(4, 8), 1)],
    "gt": [(torch.randn(8), 0.25), (torch.arange(8), 3)],
    "where": [(torch.rand(8) < 0.5, torch.randn(8), torch.randn(8))],
    "index_put": [(torch.zeros(4), [torch.tensor([1, 1])], torch.ones(2), True)],
    "_softmax": [(torch.randn(4, 8), 1, False)],
    "masked_fill": [(torch.randn(4, 8), torch.rand(4, 8) < 0.5, 0.0)],
}


@pytest.mark.parametrize("operator", _OF_CHANGES)
def test_a_change_gives_what_is_of_the_same_form(operator: str) -> None:
    num_changed = 0
    for args in _OF_CHANGES[operator]:
        packet = getattr(torch.ops.aten, operator)
        expected = packet(*args)
        for change in (one for one in CHANGES.values() if operator in one.operators):
            try:
                found = change.apply(packet, args, {})
            except NotHere:
                continue
            num_changed += 1
            for got, wanted in zip(
                *(one if isinstance(one, tuple) else (one,) for one in (found, expected)), strict=True
            ):
                assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    assert num_changed


def test_what_counts_is_told_and_what_changes_nothing_is_not() -> None:
    evaluation = Evaluation(TASK)
    mutants = evaluation.mutants()
    assert Mutant(9, "clamp", "no largest", 0) in mutants
    assert evaluation.told(Mutant(9, "clamp", "no largest", 0)) is Told.WRONG
    assert evaluation.told(Mutant(9, "abs", "left out", 0)) is Told.WRONG
    assert evaluation.told(Mutant(9, "addmm", "no bias", 0)) is Told.WRONG
    assert evaluation.told(Mutant(10, "sum", "without the last", 0)) is Told.WRONG
    assert evaluation.told(Mutant(10, "clamp", "no least", 0)) is Told.EQUAL
    assert evaluation.told(Mutant(10, "clamp", "no largest", 0)) is Told.NOT_THERE
    assert evaluation.told(Mutant(10, "clamp", "no least", 1)) is Told.NOT_THERE


def test_of_a_loop_the_first_call_the_last_and_all_are_changed() -> None:
    source = TASK.replace("y.clamp(min=-1.0).sum(-1) * 1.0", "sum(y[:, at].relu() for at in range(16))")
    relus = [mutant.call for mutant in Evaluation(source).mutants() if mutant.operator == "relu"]
    assert relus == [None, 0, 15]


def test_tasks_of_a_folder_are_asked_and_those_that_do_not_run_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "task.py").write_text(TASK.replace("y = ", "print('tasks may print'); y = "))
    (tmp_path / "ends.py").write_text(TASK.replace("y = ", "import os; os._exit(3); y = "))
    (tmp_path / "raises.py").write_text(TASK.replace("y = ", "raise ValueError('no'); y = "))
    (tmp_path / "with_kernel.py").write_text(TASK + "\nclass ModelNew(torch.nn.Module):\n    pass\n")
    (tmp_path / "no_task.py").write_text("x = 1\n")
    assert [path.name for path in tasks_of(tmp_path)] == ["ends.py", "raises.py", "task.py", "with_kernel.py"]
    main(tmp_path, 1)
    lines = capsys.readouterr().out.splitlines()
    assert any("ends.py: its process ended with status 3" in line for line in lines)
    assert any("raises.py: Model.forward() of the task raised ValueError: no" in line for line in lines)
    assert any("task.py:10 clamp #0: no least: passes 1 of 1, with the same answers" in line for line in lines)
    figures = json.loads(lines[-1])
    assert (figures["tasks"], figures["without"]) == (4, 2)
    assert figures["mutants"] > figures["passing"] == figures["passing_always"] >= figures["changing_nothing"] >= 2


def test_a_folder_without_tasks_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "kernel-eval", "--mutants", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "holds no task: a Python file with a class Model and get_inputs()" in done.stderr.replace("\n", " ")
