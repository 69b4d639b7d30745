"""Servers for tests: each is a real process on a free port of the loopback, stopped by its process group.

Not here: anything that imitates a server; a test that needs a scripted answer writes its own small one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from weir.scripts.launch.servers import free_port


def find_free_port() -> int:
    """A port of the loopback, as Weir's own commands find one."""
    return free_port()


@dataclass(kw_only=True)
class ServerProcess:
    """A running server and what a test needs to know of it."""

    url: str
    port: int
    process: subprocess.Popen[bytes]
    log_path: Path
    ledger_path: Path | None = None
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        # A kept connection may be closed by the server, after some idle seconds, just when a call is sent on it.
        unkept = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(base_url=self.url, timeout=120, trust_env=False, limits=unkept)

    def post(self, path: str, body: Any = None) -> Any:
        """POST JSON and return the decoded answer; any status but 200 fails the test with the body shown."""
        answer = self.client.post(path, json={} if body is None else body)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def get(self, path: str) -> Any:
        """GET and return the decoded answer."""
        answer = self.client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def kill(self) -> None:
        """kill -9 of the whole process group; returns when the process is gone."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, limit_s: float = 20) -> int:
        """Ask the process group to end, insist after `limit_s`; returns the exit status. May be called twice."""
        self.client.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def wait_healthy(self, limit_s: float, path: str = "/health") -> None:
        """Return when GET `path` answers 200; fails with the log's end when the process dies or `limit_s` passes."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.client.get(path, timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"{self.url} did not come up: {self.log_path.read_text(errors='replace')[-4000:]}")


def start_server(
    command: list[str],
    *,
    port: int,
    log_path: Path,
    ledger_path: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float = 300,
    ready_path: str = "/health",
) -> ServerProcess:
    """Start `command`, which must serve `ready_path` on `port`, in its own process group, and wait until it does."""
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        )
    server = ServerProcess(
        url=f"http://127.0.0.1:{port}", port=port, process=process, log_path=log_path, ledger_path=ledger_path
    )
    server.wait_healthy(limit_s, ready_path)
    return server


def start_engine(
    model: Path | str,
    *,
    folder: Path,
    arguments: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    port: int | None = None,
) -> ServerProcess:
    """Start `weir engine` on `model` with a ledger and a log in `folder`; on a free port, where none is given."""
    port = port or find_free_port()
    ledger_path = folder / f"ledger-{port}.jsonl"
    command = [sys.executable, "-m", "weir.scripts.cli.main", "engine", "--model", str(model), "--port", str(port)]
    return start_server(
        [*command, "--ledger", str(ledger_path), *arguments],
        port=port,
        log_path=folder / f"engine-{port}.log",
        ledger_path=ledger_path,
        env=env,
    )


EngineFactory = Callable[..., ServerProcess]
