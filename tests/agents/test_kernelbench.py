"""A folder in KernelBench's form becomes tasks; `weir tasks` checks them with a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support_servers import find_free_port, start_server

from weir.agents.errors import TaskError
from weir.agents.kernelbench import divided, load_kernelbench
from weir.agents.tasks import load_tasks

PROBLEM = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Adds a bias and keeps what is positive."""

    def __init__(self, num_features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(num_features))

    def forward(self, x):
        return torch.relu(x + self.bias){tail}


batch_size = 16
num_features = 4096
kernel_size = 3


def get_inputs():
    return [torch.rand(batch_size, num_features)]


def get_init_inputs():
    return [num_features]
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The folders of a checkout, with four problems on two levels; one of them is all zeros."""
    problems = {"level1/10_Ten.py": "", "level1/2_Two.py": "", "level1/1_Zero.py": " * 0", "level2/1_One.py": ""}
    for name, tail in problems.items():
        file = tmp_path / "checkout" / "KernelBench" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(PROBLEM.replace("{tail}", tail))
    (tmp_path / "checkout" / "KernelBench" / "level1" / "README.md").write_text("not a problem")
    return tmp_path / "checkout"


def test_problems_come_by_level_and_number(checkout: Path) -> None:
    ids = [task.task_id for task in load_kernelbench(checkout)]
    assert ids == [f"kernelbench_{name}" for name in ("level1_1_Zero", "level1_2_Two", "level1_10_Ten", "level2_1_One")]
    inner = checkout / "KernelBench"
    assert [task.task_id for task in load_kernelbench(inner, levels=[2])] == ids[3:]
    assert [task.task_id for task in load_kernelbench(inner / "level1")] == ids[:3]
    task = load_kernelbench(checkout, levels=[2])[0]
    assert task.reference_src in task.prompt
    assert (task.family, task.split) == ("kernelbench_level2", "train")


def test_sizes_are_divided_and_small_numbers_are_not(checkout: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile(divided(PROBLEM.replace("{tail}", ""), 64), "task", "exec"), names)
    assert [names[name] for name in ("batch_size", "num_features", "kernel_size")] == [16, 64, 3]
    assert load_kernelbench(checkout)[0].reference_src == PROBLEM.replace("{tail}", " * 0")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a = 2048 * 2", "a = 256"),
        ("a = 1 << 12", "a = 256"),
        ("a = 8192 // 2", "a = 256"),
        ("a = 8192 // 0", "a = 8192 // 0"),
        ("a = b = 2048", "a = b = 128"),
        ("a: int = 2048", "a: int = 128"),
        ("a, b = (128 * 8, 3)", "a, b = (64, 3)"),
        ("a = (2048, [512, 7])", "a = (128, [32, 7])"),
        ("a = b * 2048", "a = b * 2048"),
        ("a = round(2048)", "a = round(2048)"),
    ],
)
def test_each_form_of_a_size_is_divided(written: str, expected: str) -> None:
    assert divided(written, 16) == expected + "\n"


@pytest.mark.parametrize(
    ("text", "named"), [("import torch\n", "Model, get_inputs, get_init_inputs"), ("(", "cannot read")]
)
def test_a_file_of_another_form_is_named(checkout: Path, text: str, named: str) -> None:
    (checkout / "KernelBench" / "level1" / "3_Bad.py").write_text(text)
    with pytest.raises(TaskError, match=named):
        load_kernelbench(checkout)


def test_a_folder_without_problems_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"expected level1 … level4"):
        load_kernelbench(tmp_path)


def test_the_command_names_what_cannot_be_judged_and_keeps_the_rest(checkout: Path, tmp_path: Path) -> None:
    port = find_free_port()
    settings = tmp_path / "weir.toml"
    settings.write_text(f"[kernel_eval]\nport = {port}\n")
    weir = [sys.executable, "-m", "weir.scripts.cli.main"]
    serve = [*weir, "kernel-eval", "--config", str(settings)]
    server = start_server(serve, port=port, log_path=tmp_path / "kernel-eval.log")
    try:
        out = tmp_path / "good.jsonl"
        command = [*weir, "tasks", "check", str(checkout), "--config", str(settings), "--out", str(out), "--json"]
        done = subprocess.run([*command, "--divide-sizes", "32"], capture_output=True, text=True, timeout=120)
    finally:
        server.stop()
    assert done.returncode == 1, done.stderr
    found = {line["task_id"]: line["problem"] for line in map(json.loads, done.stdout.splitlines())}
    assert found.pop("kernelbench_level1_1_Zero") == "all_zero"
    assert set(found.values()) == {None}
    assert {task.task_id for task in load_tasks(out)} == set(found)


def test_the_command_imports_a_checkout(checkout: Path, tmp_path: Path) -> None:
    out = tmp_path / "tasks.jsonl"
    command = [
        sys.executable,
        "-m",
        "weir.scripts.cli.main",
        "tasks",
        "import",
        str(checkout),
        str(out),
        "--level",
        "1",
    ]
    assert "3 tasks in" in subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert len(load_tasks(out)) == 3
