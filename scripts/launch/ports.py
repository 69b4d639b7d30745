"""Which process listens on a TCP port of this machine: any process at all, or one of a given session."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator

import psutil


def is_taken(host: str, port: int) -> bool:
    """Whether a process has this port of one of this machine's addresses."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended take no port
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False


def session_listens(session: int, port: int) -> bool:
    """Whether a process of this session (a server that was started in a session of its own) listens on the port."""
    return any(port in _listening_ports(process) for process in _processes(session))


def _processes(session: int) -> Iterator[psutil.Process]:
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if os.getsid(pid) == session:
                yield psutil.Process(pid)


def _listening_ports(process: psutil.Process) -> set[int]:
    with contextlib.suppress(psutil.Error):  # it ended, or is another user's
        connections = process.net_connections("tcp")
        return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}
    return set()
