"""Every file of honest/ is a task with a right answer; none may be refused, and each is also compiled for a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weir.scripts.bench.kernel_eval.corpus import task_and_candidate as parts

HONEST = sorted((Path(__file__).parent / "honest").glob("*.py"))


def test_there_are_enough_of_them() -> None:
    assert len(HONEST) >= 120


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_kernel_is_right(path: Path, server: Any) -> None:
    task, candidate = parts(path.read_text())
    reply = server.evaluate(candidate, task, recompile=True)
    assert (reply["correct"], reply["fault"], reply["raw_reward"]) == (True, None, 1.0), reply
    assert "tf32_dots" not in reply["details"], "a GPU refuses products of float32 in TF32"
    kernels = reply["details"]["compile"]["kernels"]
    assert kernels
    assert all(kernel["registers"] > 0 for kernel in kernels)


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_kernel_is_not_refused_on_a_gpu(path: Path, gpu_server: Any) -> None:
    task, candidate = parts(path.read_text())
    reply = gpu_server.evaluate(candidate, task)
    assert reply["fault"] not in ("reward_hack", "server_error", "unsupported"), reply
