"""The real routers, as processes in front of given workers."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from support_servers import ServerProcess, find_free_port, start_server

from weir.scripts.launch.fleet import ROUTER_MODULES

_EGRESS = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Router:
    """A running router."""

    url: str
    process: ServerProcess


@contextlib.contextmanager
def running_router(
    workers: Sequence[str],
    folder: Path,
    *,
    kind: str = "sglang-router",
    policy: str = "round_robin",
    port: int | None = None,
) -> Iterator[Router]:
    """Start a router as Weir starts it, and wait until it knows all workers."""
    port = port or find_free_port()
    command = [sys.executable, "-m", ROUTER_MODULES[kind], "launch", "--worker-urls", *workers]
    command += ["--host", "127.0.0.1", "--port", str(port), "--policy", policy, "--log-level", "warn"]
    command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(find_free_port())]
    command += ["--disable-retries", "--disable-circuit-breaker", "--disable-health-check"]
    environment = {name: "" for name in _EGRESS if name in os.environ}
    process = start_server(command, port=port, log_path=folder / f"{kind}-{port}.log", env=environment)
    try:
        wait_for_workers(process.url, set(workers))
        yield Router(process.url, process)
    finally:
        process.stop()


def wait_for_workers(url: str, workers: set[str]) -> None:
    """Return when exactly these workers are in a router's rotation, which it changes asynchronously."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        listed = httpx.get(f"{url}/workers", trust_env=False, timeout=120).json()["workers"]
        if {worker["url"] for worker in listed if worker.get("is_healthy", True)} == workers:
            return
        time.sleep(0.05)
    raise AssertionError(f"the router at {url} has the workers {listed}, not {sorted(workers)}")
