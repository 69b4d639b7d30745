"""Server processes on one machine: started in order, waited for, stopped in reverse.

Invariant: a server started here never outlives this process, even where that is killed: the kernel sends it SIGKILL
when its parent dies. Each server's output goes to its own log file.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from weir.scripts.launch.errors import ServerFailed
from weir.scripts.launch.ports import session_listens
from weir.store.parent_death import end_with_parent

_FIRST_PORT = 10_000
_MOST_CLAIMS = 256  # of ports at once, each an open file
_CHANCE = random.SystemRandom()  # processes that seed `random` alike would choose the same ports
_claims: deque[socket.socket] = deque()
_OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PROXY_VARIABLES = {"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How a server is started, and the URL that answers 200 once it is ready; None: there is nothing to wait for."""

    name: str
    argv: Sequence[str]
    ready_url: str | None
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: Sequence[int] = ()  # that it is bound to; none: all
    is_vital: bool = True  # calls cannot be served and recorded without it


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now, outside the range that the kernel gives to outgoing connections.

    No other process gets it from here while this one lives and draws few more: a server may take long to listen.
    """
    while True:
        port = _CHANCE.randrange(_FIRST_PORT, _first_outgoing_port())
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((host, port))
            _claim(port)
            return port


def _claim(port: int) -> None:
    """Claim a port by the UDP socket of its number, which the kernel frees with the process. Raises OSError: taken."""
    claim = socket.socket(type=socket.SOCK_DGRAM)
    try:
        claim.bind(("127.0.0.1", port))
    except OSError:
        claim.close()
        raise
    _claims.append(claim)
    if len(_claims) > _MOST_CLAIMS:
        _claims.popleft().close()


def _first_outgoing_port() -> int:
    with contextlib.suppress(OSError, ValueError):
        return max(int(_OUTGOING_PORTS.read_text().split()[0]), _FIRST_PORT + 1000)
    return 32768


def free_ports_in_row(count: int, *, wanted: int | None = None, host: str = "127.0.0.1") -> int:
    """The first of `count` consecutive ports that nobody listens on now; `wanted` if that is such a one."""
    first = free_port(host) if wanted is None else wanted
    while True:
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind((host, port))
            for port in range(first + 1, first + count) if first != wanted else ():
                _claim(port)
            return first
        first = free_port(host)


@contextlib.contextmanager
def running(
    servers: Sequence[Server],
    *,
    ready_timeout_s: float = 120.0,
    on_wait: Callable[[Server], None] = lambda server: None,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the servers together, wait until each is ready, and stop them in reverse order at the end of the block.

    `on_wait` gets each server before it is waited for; `pause` waits between two looks, and what it raises ends the
    wait. Raises ServerFailed as `wait_ready` does; those that were started are stopped first.
    """
    with started(servers) as processes:
        wait_ready(servers, processes, timeout_s=ready_timeout_s, on_wait=on_wait, pause=pause)
        yield processes


@contextlib.contextmanager
def started(servers: Sequence[Server]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the servers together without waiting, and stop them in reverse order at the end of the block."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.extend(start(server) for server in servers)
        yield processes
    finally:
        for process in reversed(processes):
            stop(process)


def wait_ready(
    servers: Sequence[Server],
    processes: Sequence[subprocess.Popen[bytes]],
    *,
    timeout_s: float = 120.0,
    on_wait: Callable[[Server], None] = lambda server: None,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Wait until every server answers 200 itself: another server on its port does not count.

    Raises ServerFailed where one ends or is not ready in time.
    """
    deadline = time.monotonic() + timeout_s
    for server, process in zip(servers, processes, strict=True):
        if server.ready_url is not None:
            on_wait(server)
        _wait_ready(server, process, deadline, pause)


def stop(process: subprocess.Popen[bytes], *, grace_s: float = 15.0) -> None:
    """Send SIGTERM to the process group, SIGKILL after the grace; returns when the process has ended."""
    for signal_number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)


def start(server: Server) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own without waiting. It ends with the thread that started it."""
    environment = {name: value for name, value in os.environ.items() if name not in _PROXY_VARIABLES}
    server.log_path.parent.mkdir(parents=True, exist_ok=True)
    with server.log_path.open("ab") as log:
        return subprocess.Popen(
            server.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment | dict(server.environment),
            start_new_session=True,
            preexec_fn=functools.partial(_before_it_runs, server.cores, os.getpid()),
        )


def _before_it_runs(cores: Sequence[int], parent_pid: int) -> None:
    if cores:
        os.sched_setaffinity(0, cores)
    end_with_parent(parent_pid=parent_pid)


def _wait_ready(
    server: Server, process: subprocess.Popen[bytes], deadline: float, pause: Callable[[float], object]
) -> None:
    if server.ready_url is None:
        return
    port = httpx.URL(server.ready_url).port or 80
    with httpx.Client(trust_env=False, timeout=5.0) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServerFailed(
                    f"{server.name} ended with status {process.returncode} before it was ready"
                    f"{last_line(server.log_path)}; its log is {server.log_path}"
                )
            with contextlib.suppress(httpx.TransportError):
                if client.get(server.ready_url).status_code == 200 and session_listens(process.pid, port):
                    return
            pause(0.05)
    raise ServerFailed(
        f"{server.name} was not ready in time (no 200 of its own from {server.ready_url})"
        f"{last_line(server.log_path)}; its log is {server.log_path}"
    )


def last_line(log_path: Path) -> str:
    """What a log says last, as the end of a sentence; empty where there is nothing."""
    lines = log_path.read_text(errors="replace").splitlines() if log_path.exists() else []
    return f", saying: {lines[-1].strip()}" if lines else ""
