"""`weir ui`: listens on the port, prints the address, serves until a signal."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from weir.store.config import StoreConfig
from weir.ui.app import create_app
from weir.ui.config import UiConfig
from weir.ui.errors import AddressUnavailable
from weir.ui.servers import Addresses


def serve(
    config: UiConfig,
    store: StoreConfig,
    tokenizer: Path | None,
    control_key: str | None,
    config_path: Path | None,
    addresses: Addresses,
    others: Sequence[StoreConfig],
) -> None:
    """Serve until a signal; the first line of stdout is the address. Raises AddressUnavailable and StoreError."""
    _step_back(config.nice)
    app = create_app(config, store, tokenizer, control_key, config_path, addresses, others)
    with _listener(config.host, config.port) as listener:
        host = f"[{config.host}]" if ":" in config.host else config.host
        print(f"weir ui: http://{host}:{listener.getsockname()[1]}", flush=True)
        settings = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
        logging.getLogger("uvicorn.error").addFilter(lambda _: app.state.refused is None)  # said by what is raised
        try:
            uvicorn.Server(settings).run(sockets=[listener])
        except SystemExit:
            if app.state.refused is None:
                raise
    if app.state.refused is not None:
        raise app.state.refused.with_traceback(None)


def _step_back(nice: int) -> None:
    """Let other processes have the processor first.

    Linux may weigh whole sessions against each other, and then `nice` counts within one only (sched(7), "The autogroup
    feature"): a page that `weir up` started is a session of its own.
    """
    os.nice(nice)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):  # of a kernel without that feature
            Path("/proc/self/autogroup").write_text(str(nice))


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise AddressUnavailable(
            f"cannot serve the page at {host}:{port}: {error.strerror}; set ui.host and ui.port, "
            "or stop the process that has the port"
        ) from error
