"""Who listens on a TCP port of this machine: anybody at all, and which process, as Linux tells it in /proc."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN = "0A"


def is_taken(host: str, port: int) -> bool:
    """Whether somebody has this port of an address of ours."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended take no port
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False


def session_listens(session: int, port: int) -> bool:
    """Whether a process of this session (a server that was started in one of its own) listens on the port."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    return any(link in sockets for process in _processes(session) for link in _open_files(process))


def _listening_inodes(port: int) -> Iterator[str]:
    for table in _TABLES:
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _processes(session: int) -> Iterator[Path]:
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(ProcessLookupError):
            if folder.name.isdecimal() and os.getsid(int(folder.name)) == session:
                yield folder


def _open_files(process: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for file in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                yield str(file.readlink())
