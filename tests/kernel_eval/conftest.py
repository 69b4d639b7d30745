"""Real servers, one for each sandbox level that works here, and the sources that tests send to them.

They draw the same inputs in each run. With WEIR_TEST_NEW_DRAWS set they draw new ones, as servers of users do; how
often honest kernels and cheats are then judged wrong, `weir bench kernel-eval --corpus tests` says.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from weir.kernel_eval.ipc.forkserver import Lease, Ready
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.sandbox.levels import SandboxLevel

_HERE = Path(__file__).parent
_LIMITS: dict[str, Any] = {
    "port": 0,
    "gpus": [],
    "call_timeout_s": 4.0,
    "load_timeout_s": 10.0,
    "native_timeout_s": 450.0,  # torch's headers take nvcc a minute of its own
    "evaluation_timeout_s": 480.0,
    "memory_bytes": 1 << 29,
    "draws_from": None if os.environ.get("WEIR_TEST_NEW_DRAWS") else "the tests of this repository",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a GPU are marked so, and skipped where there is none."""
    for item in items:
        if "gpu_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.gpu)
        if item.get_closest_marker("gpu") is not None and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def example(name: str) -> str:
    return (_HERE / f"example_{name}.py").read_text()


class Server:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], first_line: str) -> None:
        self.process = process
        self.first_line = first_line
        self.url = first_line.split()[2] if first_line else ""
        self.http = httpx.Client(base_url=self.url, timeout=500, trust_env=False)

    def evaluate(self, candidate: str, task: str | None = None, **fields: Any) -> dict[str, Any]:
        body = {"original_model_src": task or example("relu_task"), "custom_model_src": candidate}
        response = self.http.post("/eval", json={**body, "num_correct_trials": 2, **fields})
        assert response.status_code == 200, response.text
        reply: dict[str, Any] = response.json()
        return reply


@contextlib.contextmanager
def running_server(**settings: Any) -> Iterator[Server]:
    command = [sys.executable, "-m", "weir.kernel_eval.server.main", json.dumps({**_LIMITS, **settings})]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        server = Server(process, process.stdout.readline())
        yield server
        server.http.close()
    finally:
        process.terminate()
        process.wait(120)


@pytest.fixture(scope="session")
def start_server() -> Callable[..., contextlib.AbstractContextManager[Server]]:
    return running_server


@pytest.fixture
def read_example() -> Callable[[str], str]:
    return example


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server() as started:
        yield started


def _contained(level: SandboxLevel) -> Iterator[Server]:
    if not containment.works(level):
        pytest.skip(f"the sandbox level {level} does not work on this machine")
    with running_server(sandbox=level) as started:
        yield started


@pytest.fixture(scope="session", params=[SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK])
def contained_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from _contained(request.param)


@pytest.fixture(scope="session", params=list(SandboxLevel))
def server_of_every_level(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from _contained(request.param)


@pytest.fixture(scope="session")
def gpu_server() -> Iterator[Server]:
    """One that judges on the GPUs of this machine."""
    with running_server(gpus=None, memory_bytes=1 << 34, call_timeout_s=30.0) as started:
        yield started


@pytest.fixture
def programs() -> Iterator[socket.socket]:
    """A lease on a real forkserver of programs."""
    control, theirs = socket.socketpair()
    lease, its_lease = socket.socketpair()
    with theirs, its_lease, control, lease:
        command = [sys.executable, "-m", "weir.kernel_eval.zygotes.program", str(theirs.fileno()), "rlimits"]
        with subprocess.Popen(command, pass_fds=(theirs.fileno(),)) as process:
            theirs.close()
            receive(control, Ready)
            send(control, Lease(), (its_lease.fileno(),))
            its_lease.close()
            yield lease
            process.kill()
