"""Tasks that cannot be judged are rejected with the name of their problem; others are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from weir.agents.family import family_tasks
from weir.agents.tasks import load_tasks
from weir.kernel_eval.client import KernelEvalClient, KernelEvalUnavailable, TaskCheck
from weir.kernel_eval.protocol import Problem

EXAMPLES = Path(__file__).parents[3] / "agents" / "examples"
TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

BUSY = (
    "import time; started = time.process_time(); [0 for _ in iter(lambda: time.process_time() < started + 0.5, False)]"
)


@pytest.fixture(scope="module")
def strict_server(start_server: Any) -> Iterator[Any]:
    """One that calls a task slow after 0.3 s."""
    with start_server(task_call_s=0.3) as started:
        yield started


def check(server: Any, body: str, inputs: str = "torch.randn(4, 33)") -> Any:
    source = TASK.format(body=body, inputs=inputs)
    response = server.http.post("/tasks/check", json={"reference_src": source})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(
    ("body", "inputs", "problem"),
    [
        ("return torch.zeros_like(x)", "torch.randn(4, 33)", "all_zero"),
        ("return x * 1e-9", "torch.randn(4, 33)", "tiny_output"),
        ("return torch.ones(7) + 0 * x.sum()", "torch.randn(4, 33)", "constant_output"),
        ("return torch.softmax(x, -1)", "torch.randn(33, 1)", "constant_output"),
        ("return torch.relu(x)", "torch.arange(7.0)", "constant_output"),
        ("return torch.dropout(x, 0.5, True)", "torch.randn(4, 33)", "nondeterministic"),
        ("return x / 0", "torch.randn(4, 33)", "non_finite"),
        ("return x[:0]", "torch.randn(4, 33)", "empty_output"),
        ("return 5", "torch.randn(4, 33)", "does_not_run"),
        ("return torch.ones(3)", "5", "no_inputs"),
        ("return x @ x", "torch.randn(4, 33)", "does_not_run"),
        (f"for _ in range(100): x = 3.9 * x * (1 - x)\n{' ' * 8}return x", "torch.rand(4, 33)", "amplifies_rounding"),
        (f"{BUSY}; return x", "torch.randn(4, 33)", "too_slow"),
        ("return x", "torch.randn(4, 33).to(torch.float8_e5m2)", "unsupported"),
    ],
)
def test_a_task_that_cannot_be_judged_is_named(strict_server: Any, body: str, inputs: str, problem: str) -> None:
    found = check(strict_server, body, inputs)
    assert (found["judgeable"], found["problem"]) == (False, problem)
    assert len(found["message"]) > 15


def test_time_that_is_not_the_tasks_own_does_not_make_it_slow(strict_server: Any) -> None:
    found = check(strict_server, "import time; time.sleep(0.4); return torch.relu(x)")
    assert (found["judgeable"], found["problem"]) == (True, None), found


def test_a_task_beyond_the_memory_of_its_judge_is_told_so(strict_server: Any) -> None:
    for body, inputs in (
        ("return x * 2", "torch.ones(1 << 40)"),
        ("return torch.ones(1 << 40) * x[0]", "torch.ones(4)"),
    ):
        found = check(strict_server, body, inputs)
        assert found["problem"] == "does_not_run"
        assert "task_memory_bytes allows; make its sizes smaller" in found["message"]


def test_a_large_answer_is_examined_all_the_same(server: Any) -> None:
    assert check(server, "return torch.relu(x)", "torch.randn(2100, 2000)")["problem"] is None
    assert check(server, "return torch.softmax(x, 0)", "torch.randn(2100, 2000)")["problem"] is None
    chaos = f"for _ in range(60): x = 3.9 * x * (1 - x)\n{' ' * 8}return x"
    assert check(server, chaos, "torch.rand(2100, 2000)")["problem"] == "amplifies_rounding"
    spoilt = f"x[0] = float('nan')\n{' ' * 8}return x * 1e-6"
    assert check(server, spoilt, "torch.randn(2100, 2000)")["problem"] == "tiny_output"


def test_a_good_task_says_what_it_gives_and_how_long_it_takes(server: Any) -> None:
    found = check(server, "return torch.relu(x), x[:, 0] > 0, x.argmax(-1)")
    assert found["judgeable"] is True
    assert found["outputs"] == [["float32", 4, 33], ["bool", 4], ["int64", 4]]
    assert 0 < found["call_s"] < 2


def test_our_own_tasks_can_be_judged(server: Any) -> None:
    tasks = [*load_tasks(EXAMPLES), *family_tasks("train")[::40]]

    async def check_all() -> list[TaskCheck]:
        client = KernelEvalClient(server.url)
        try:
            return [await client.check_task(task) for task in tasks]
        finally:
            await client.aclose()

    found = asyncio.run(check_all())
    assert [task.task_id for task, one in zip(tasks, found, strict=True) if not one.judgeable] == []


def test_a_task_that_relaxes_a_rule_that_nobody_knows_is_named_and_so_are_the_rules(server: Any) -> None:
    task = msgspec.structs.replace(load_tasks(EXAMPLES)[0], relax_rules=["torch_operator", "no_such_rule"])

    async def ask() -> TaskCheck:
        client = KernelEvalClient(server.url)
        try:
            return await client.check_task(task)
        finally:
            await client.aclose()

    found = asyncio.run(ask())
    assert (found.judgeable, found.problem) == (False, Problem.UNKNOWN_RULE)
    assert "no_such_rule" in found.message
    assert "torch_operator" in found.message


def test_a_server_that_is_away_is_no_verdict_on_a_task() -> None:
    async def ask() -> None:
        client = KernelEvalClient("http://127.0.0.1:9", attempts=1)
        await client.check_task(load_tasks(EXAMPLES)[0])

    with pytest.raises(KernelEvalUnavailable, match=r"no verdict on task .* after \d attempts: .*; look at"):
        asyncio.run(ask())


@pytest.mark.parametrize("body", [b"", b"[]", b'{"reference_src": 5}', b"{"])
def test_a_malformed_request_is_refused(server: Any, body: bytes) -> None:
    assert server.http.post("/tasks/check", content=body).status_code == 400
