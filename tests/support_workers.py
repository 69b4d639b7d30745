"""`weir proxy` with several workers as a process group, and the way to one of its workers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from weir.store.log.segment_format import list_segments, read_segment
from weir.store.records.call_record import CallRecord

KEY = "the-control-key-of-tests"


@dataclass(kw_only=True)
class Workers:
    """A running proxy of several workers."""

    url: str
    store: Path
    process: subprocess.Popen[str]

    def client(self, **options: Any) -> openai.OpenAI:
        """An OpenAI client as agents have one, without its own retries unless asked."""
        return openai.OpenAI(
            base_url=self.url + "/v1", **({"api_key": "agent", "max_retries": 0, "timeout": 60.0} | options)
        )

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """One request to a control route, on a connection of its own."""
        headers = {"authorization": f"Bearer {KEY}"}
        answer = httpx.request(method, self.url + path, json=body, headers=headers, trust_env=False, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self) -> Any:
        """What the proxy says of itself."""
        return self.control("GET", "/weir/state")

    def kill_worker(self, writer: str) -> None:
        """kill -9 of the worker with this log writer's name, which ends with its pid."""
        os.kill(int(writer.rpartition("-")[2]), signal.SIGKILL)

    def wait_until(self, condition: Callable[[Any], bool]) -> Any:
        """Ask for the state until it is as wanted; a connection that a dead worker drops is asked again."""
        while True:
            with contextlib.suppress(httpx.TransportError):
                state = self.state()
                if condition(state):
                    return state
            time.sleep(0.02)

    def records(self) -> list[CallRecord]:
        """Every record in the logs of all workers."""
        return [record for s in list_segments(self.store / "log") for record in read_segment(s.path).records]


@contextlib.contextmanager
def running_workers(folder: Path, model: Path, upstream_url: str, workers: int, **settings: Any) -> Iterator[Workers]:
    """Serve until the block ends; `settings` are those of section [proxy]."""
    options = ["--upstream", upstream_url, "--model", str(model), "--root", str(folder / "store")]
    values = {"control_key": KEY, "retry_backoff_s": 0.05} | settings
    process = subprocess.Popen(
        [sys.executable, "-m", "weir.scripts.cli.main", "proxy", "--port", "0", "--workers", str(workers), *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {f"WEIR_PROXY__{name.upper()}": str(value) for name, value in values.items()},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"base_url (http://127\.0\.0\.1:\d+)/v1 ", line)
        assert found, line
        yield Workers(url=found[1], store=folder / "store", process=process)
    finally:
        process.terminate()
        process.wait()
