"""A task's own code affects no other task: it is contained, and its judge judges no other task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.tasks import device_mapping
from weir.kernel_eval.tasks.device_mapping import is_accepted_by_a_cpu

TASK = """
import ctypes, os, sys, threading, time
import torch

{top}

class Model(torch.nn.Module):
    def forward(self, x):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
FORKS = "pid = os.fork(); os.waitpid(pid, 0) if pid else time.sleep(60); return x * 2"
BROKEN = {
    "forks": {"body": FORKS},
    "ends_its_process": {"body": "os._exit(0)"},
    "exits": {"body": "sys.exit(0)"},
    "crashes": {"body": "ctypes.string_at(0)"},
    "takes_all_memory": {"top": "held = []\nwhile True: held.append(torch.ones(1 << 24))"},
    "raises_what_is_no_text": {"body": "raise ValueError('\\ud800')"},
    "raises_a_long_text": {"body": "raise ValueError('x' * (64 << 20))"},
    "takes_a_sparse_tensor": {"inputs": "torch.randn(7, 5).to_sparse()"},
    "takes_a_tensor_without_data": {"inputs": "torch.randn(7, 5, device='meta')"},
    "gives_more_than_memory": {"body": "return x.sum().expand(1 << 20, 1 << 20)"},
}


@pytest.fixture(scope="module", params=list(SandboxLevel), ids=str)
def small_server(request: Any, start_server: Any) -> Iterator[Any]:
    """One slot, so that any judge that is used again would be used by the next task."""
    if not containment.works(request.param):
        pytest.skip(f"the sandbox level {request.param} does not work on this machine")
    with start_server(sandbox=request.param, concurrency=1, task_memory_bytes=1 << 29) as started:
        yield started


def task(**parts: str) -> str:
    return TASK.format(**{"top": "", "body": "return torch.relu(x)", "inputs": "torch.randn(7, 5)", **parts})


@pytest.mark.parametrize("name", BROKEN)
def test_a_task_whose_code_breaks_its_process_does_not_run(small_server: Any, name: str) -> None:
    found = small_server.http.post("/tasks/check", json={"reference_src": task(**BROKEN[name])}).json()
    assert (found.get("judgeable"), found.get("problem")) == (False, "does_not_run"), found
    assert found["message"].strip()
    assert small_server.http.post("/tasks/check", json={"reference_src": task()}).json()["judgeable"] is True


@pytest.mark.parametrize(
    "top", ["torch.relu = torch.sigmoid", "torch.set_default_device('cuda')", "torch.Tensor.copy_ = None"]
)
def test_what_a_task_does_to_torch_reaches_no_other_task(small_server: Any, read_example: Any, top: str) -> None:
    candidate = read_example("relu_candidate")
    small_server.evaluate(candidate, task(top=top))
    assert small_server.evaluate(candidate)["correct"] is True


@pytest.mark.parametrize("top", ["torch.relu = torch.sigmoid", "torch.set_default_dtype(torch.float64)"])
def test_nor_does_it_on_a_gpu(gpu_server: Any, read_example: Any, top: str) -> None:
    candidate = read_example("relu_candidate")
    gpu_server.evaluate(candidate, task(top=top))
    assert gpu_server.evaluate(candidate)["correct"] is True


def test_a_task_leaves_nothing_in_shared_memory(contained_server: Any) -> None:
    top = """
for folder in ("/dev/shm", "/scratch", "/tmp"):
    try:
        with open(folder + "/weir-task-left", "wb") as file:
            file.write(bytes(1 << 20))
    except OSError:
        pass
"""
    seen = "raise ValueError([f for f in ('/dev/shm', '/scratch', '/tmp') if os.path.exists(f + '/weir-task-left')])"
    contained_server.http.post("/tasks/check", json={"reference_src": task(top=top)})
    found = contained_server.http.post("/tasks/check", json={"reference_src": task(top=seen)}).json()
    assert found["message"] == "import of the task raised ValueError: []"


def test_a_draw_that_only_a_gpu_accepts_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU divides integers by zero without an error, and to other numbers in each program."""

    class Divides(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x // y

    ones, zeros = torch.ones(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    assert is_accepted_by_a_cpu(Divides(), [ones, zeros])  # where the task's own code runs on a CPU anyway
    monkeypatch.setattr(device_mapping, "_is_cuda", lambda _: True)
    assert is_accepted_by_a_cpu(Divides(), [ones, ones])
    assert not is_accepted_by_a_cpu(Divides(), [ones, zeros])
