"""`python -m weir.kernel_eval.server.main JSON`: listens on the port, prints the address, serves until a signal."""

from __future__ import annotations

import os
import resource
import socket
import sys

import uvicorn

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.errors import AddressUnavailable, TooFewFiles
from weir.kernel_eval.server.app import create_app

_BASE_FILES = 128  # for connections, and for a worker's own limit
_FILES_PER_SLOT = 8


def serve(config: KernelEvalConfig) -> None:
    """Serve until a signal. Once connections are accepted, the first line of stdout has the address and the sandbox.

    Raises `KernelEvalError` if the server cannot start.
    """
    _open_standard_streams()
    _raise_file_limit(_BASE_FILES + _FILES_PER_SLOT * config.num_slots)
    app = create_app(config)
    with _listener(config.host, config.port) as listener:
        port = listener.getsockname()[1]
        print(f"weir kernel-eval: http://{config.host}:{port} {app.state.description}", flush=True)
        settings = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
        uvicorn.Server(settings).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise AddressUnavailable(
            f"cannot listen: {error.strerror}; set kernel_eval.host and kernel_eval.port, "
            "or stop the process that has the port, which may be the server of a `weir up`"
        ) from error


def _open_standard_streams() -> None:
    """Open fds 0–2 if closed, so that sockets cannot take those numbers and get lost in child processes."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number, which is `fd`
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _raise_file_limit(needed: int) -> None:
    """Raise the limit on open files to the hard limit. Raises `TooFewFiles` if that is too low for the slots."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise TooFewFiles(
            f"this process may open {hard} files, and {needed} are needed: raise the limit (ulimit -Hn {needed}), "
            "or lower kernel_eval.concurrency"
        )


if __name__ == "__main__":
    serve(KernelEvalConfig.model_validate_json(sys.argv[1] if len(sys.argv) > 1 else "{}"))
