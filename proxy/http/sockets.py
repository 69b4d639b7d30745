"""The sockets that a proxy listens on, and the limit on open files.

Invariant: a port is shared by the workers of one proxy and by nobody else: it is held by a socket that was bound while
nobody else listened there. A Unix socket is reached through its folder's descriptor, because the kernel takes no path
of more than 107 bytes.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
from pathlib import Path

from weir.proxy.errors import SetupError

BACKLOG = 2048
FEW_FILES = 4096
_UNSPECIFIED = ("0.0.0.0", "::", "")

logger = logging.getLogger("weir.proxy.http.sockets")


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket that does not listen yet; with `shared`, other processes may bind the same port likewise.

    Raises `SetupError`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SetupError(f"cannot listen on {host}:{port}: {error.strerror}; set proxy.host and proxy.port") from error
    return listener


def reserve(host: str, port: int) -> socket.socket:
    """A socket on a free port that workers may share; it reserves the port while it is open and gets no connections.

    Raises `SetupError`.
    """
    with bind(host, port) as alone:
        free = alone.getsockname()[1]
    return bind(host, free, shared=True)


def url_of(listener: socket.socket) -> str:
    """The base URL of a bound socket for other processes, with this machine's name where it is bound to any address."""
    host, port = listener.getsockname()[:2]
    name = socket.gethostname() if host in _UNSPECIFIED else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def listen_unix(path: Path) -> socket.socket:
    """A listening Unix socket that only this user can reach. Raises `SetupError`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SetupError(f"cannot listen on {path}: {error}; look at the folder of store.root") from error
    finally:
        os.close(folder)
    return listener


def raise_file_limit() -> int:
    """Raise the limit on open files, and so on connections, to the hard limit; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < FEW_FILES:
        logger.warning(
            "this process may open %d files, two for each call in flight: raise `ulimit -Hn` for more calls at once",
            hard,
        )
    return hard
