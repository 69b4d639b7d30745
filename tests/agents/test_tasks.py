"""Task files and the generated family: what is read, what is refused, and that the references are what they say."""

from __future__ import annotations

import types
from pathlib import Path

import pytest
import torch

from weir.agents.errors import TaskError
from weir.agents.family import FAMILY_FILE, Kind, family_tasks, members, write_family
from weir.agents.tasks import load_tasks, parse_kernelbench, write_tasks
from weir.kernel_eval.client import KernelTask

EXAMPLES = Path(__file__).parents[2] / "agents" / "examples"

KERNELBENCH = '''"""Double it."""
import torch
raise RuntimeError("a task file is never run")
{more}
class Model(torch.nn.Module):
    def forward(self, x): return 2 * x
def get_inputs(): return [torch.ones(3)]
def get_init_inputs(): return []
'''


def module_of(task: KernelTask) -> types.ModuleType:
    module = types.ModuleType(task.task_id)
    exec(task.reference_src, module.__dict__)
    return module


def answer_of(task: KernelTask, inputs: list[torch.Tensor]) -> torch.Tensor:
    module = module_of(task)
    answer: torch.Tensor = module.Model(*module.get_init_inputs())(*inputs)
    return answer


def family_task(task_id: str) -> KernelTask:
    return next(task for task in family_tasks() if task.task_id == task_id)


def test_a_kernelbench_file_is_parsed_and_never_run() -> None:
    task = parse_kernelbench(KERNELBENCH.format(more='split = "heldout"\nfamily = "scaling"'), "double")
    assert (task.task_id, task.prompt, task.split, task.family) == ("double", "Double it.", "heldout", "scaling")
    assert task.candidate_template is None
    assert parse_kernelbench(KERNELBENCH.format(more=""), "double").split == "train"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def broken(:", "line 1 is not Python"),
        ("import torch", "no module docstring"),
        ('"""Prompt."""\nclass Model: pass', "get_inputs, get_init_inputs not defined"),
        (KERNELBENCH.format(more='split = "test"'), "split is"),
    ],
)
def test_a_file_that_is_no_task_is_refused_with_the_reason(source: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        parse_kernelbench(source, "double")


def test_a_folder_may_hold_both_forms_and_ids_must_differ(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(KERNELBENCH.format(more=""))
    write_tasks(tmp_path / "more.jsonl", family_tasks()[:2])
    assert [task.task_id for task in load_tasks(tmp_path)] == ["double", "unary_relu_x1", "unary_relu_x2"]
    assert load_tasks(tmp_path / "more.jsonl") == family_tasks()[:2]
    write_tasks(tmp_path / "same.jsonl", family_tasks()[:1])
    with pytest.raises(TaskError, match="unary_relu_x1 appears twice"):
        load_tasks(tmp_path)


def test_a_wrong_line_is_named_and_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no tasks in"):
        load_tasks(tmp_path)
    (tmp_path / "tasks.jsonl").write_text('\n{"task_id": "x"}\n')
    with pytest.raises(TaskError, match=r"tasks.jsonl:2 is not a task"):
        load_tasks(tmp_path)
    assert TaskError.exit_code == 2


def test_there_are_a_dozen_hand_written_tasks_for_a_whole_module() -> None:
    tasks = load_tasks(EXAMPLES)
    assert len(tasks) >= 12
    assert {task.candidate_template for task in tasks} == {None}
    assert {task.family for task in tasks} == {"hand-written"}
    assert {"softmax", "layer_norm", "rms_norm", "matmul", "rope"} <= {task.task_id for task in tasks}


@pytest.mark.parametrize("task", load_tasks(EXAMPLES), ids=lambda task: task.task_id)
def test_the_reference_of_a_hand_written_task_runs(task: KernelTask) -> None:
    answer = answer_of(task, module_of(task).get_inputs())
    assert answer.isfinite().all()
    assert answer.numel() > 1


def test_every_reference_of_the_family_runs_and_no_two_tasks_are_the_same() -> None:
    tasks = family_tasks()
    assert len({task.prompt for task in tasks}) == len({task.task_id for task in tasks}) == len(tasks) >= 157
    for task in tasks:
        assert answer_of(task, module_of(task).get_inputs()).isfinite().all()
        assert task.candidate_template is not None
        assert task.candidate_template.count("{kernel}") == 1


def test_references_compute_what_their_prompts_say() -> None:
    x, y = torch.tensor([1.0, -2.0]), torch.tensor([4.0, 3.0])
    rows = torch.tensor([[1.0, 2.0, 6.0], [4.0, -1.0, 0.0]])
    assert answer_of(family_task("unary_relu_x3"), [x]).tolist() == [3.0, 0.0]
    assert answer_of(family_task("unary_square_x2"), [x]).tolist() == [2.0, 8.0]
    assert answer_of(family_task("binary_sub_x2"), [x, y]).tolist() == [-6.0, -10.0]
    assert answer_of(family_task("fused_abs_of_mul"), [x, y]).tolist() == [4.0, 6.0]
    assert answer_of(family_task("row_mean_x2"), [rows]).tolist() == [6.0, 2.0]
    assert answer_of(family_task("row_sumsq_x1"), [rows]).tolist() == [41.0, 17.0]
    assert family_task("fused_abs_of_mul").prompt == "# out[i] = abs(mul(x[i], y[i]))"


def test_rows_lie_so_that_a_wrong_neutral_element_changes_their_extremes() -> None:
    largest = module_of(family_task("row_max_x1")).get_inputs()[0]
    smallest = module_of(family_task("row_min_x1")).get_inputs()[0]
    assert (largest.amax(dim=1) < 0).float().mean() > 0.5
    assert (smallest.amin(dim=1) > 0).float().mean() > 0.5


def test_the_split_is_fixed_and_holds_out_some_of_every_kind() -> None:
    heldout = [member for member in members() if member.split == "heldout"]
    assert len(heldout) == 32
    assert {member.kind for member in heldout} == set(Kind)
    assert [member.task_id for member in heldout][:3] == ["unary_relu_x9", "unary_sigmoid_x7", "unary_exp_x8"]
    assert {task.split for task in family_tasks("train")} == {"train"}
    assert len(family_tasks("train")) + len(heldout) == len(members())


def test_a_written_family_is_a_task_folder(tmp_path: Path) -> None:
    assert write_family(tmp_path) == tmp_path / FAMILY_FILE
    assert load_tasks(tmp_path) == family_tasks()
