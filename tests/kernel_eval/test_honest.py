"""Every file of honest/ is a task with a right answer; none may be refused, and each is also compiled for a GPU."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

HONEST = sorted((Path(__file__).parent / "honest").glob("*.py"))
_TASK = ("Model", "get_inputs", "get_init_inputs")


def parts(source: str) -> tuple[str, str]:
    """Splits a file into the task and the candidate."""
    lines = source.splitlines(keepends=True)
    task, candidate = ["import torch\n"], []
    for node in ast.parse(source).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        text = "".join(lines[first - 1 : node.end_lineno]) + "\n"
        (task if getattr(node, "name", None) in _TASK else candidate).append(text)
    return "".join(task), "".join(candidate)


def test_there_are_enough_of_them() -> None:
    assert len(HONEST) >= 120


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_kernel_is_right(path: Path, server: Any) -> None:
    task, candidate = parts(path.read_text())
    reply = server.evaluate(candidate, task)
    assert (reply["correct"], reply["fault"], reply["raw_reward"]) == (True, None, 1.0), reply
    kernels = reply["details"]["compile"]["kernels"]
    assert kernels
    assert all(kernel["registers"] > 0 for kernel in kernels)


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_kernel_is_not_refused_on_a_gpu(path: Path, gpu_server: Any) -> None:
    task, candidate = parts(path.read_text())
    reply = gpu_server.evaluate(candidate, task)
    assert reply["fault"] not in ("reward_hack", "server_error", "unsupported"), reply
