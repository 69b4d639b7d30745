"""How many bytes this process has given to its TCP connections, by the kernel's own count of each."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Collection
from pathlib import Path

_OWN = Path("/proc/self/fd")
_BYTES_SENT = 200  # where tcpi_bytes_sent lies in struct tcp_info, linux/tcp.h
_NOT_SENT = 144  # tcpi_notsent_bytes: what it was given and has not sent yet


def sockets() -> frozenset[str]:
    """Names of the open sockets of this process."""
    return frozenset(_open_sockets())


def sent_bytes(names: Collection[str]) -> int:
    """The bytes given to those of these sockets that are TCP connections, and those that were sent again."""
    total = 0
    for name, number in _open_sockets().items():
        if name not in names:
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                if len(info) >= _BYTES_SENT + 8:
                    total += int(struct.unpack_from("=Q", info, _BYTES_SENT)[0])
                    total += int(struct.unpack_from("=I", info, _NOT_SENT)[0])
    return total


def _open_sockets() -> dict[str, int]:
    """The descriptors of open sockets, by names that the kernel gives no other socket while they are open."""
    found: dict[str, int] = {}
    for path in _OWN.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            name = str(path.readlink())
            if name.startswith("socket:"):
                found[name] = int(path.name)
    return found
