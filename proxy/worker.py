"""One worker process of a proxy: it reads its order from stdin and reports its start as one line in a pipe.

Invariant: it does not outlive its parent: the kernel sends it SIGTERM when the parent dies, and it drains. The parent
is `supervisor.py`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from weir.proxy.assembly import Served
from weir.proxy.config import ProxyConfig
from weir.proxy.http.sockets import bind
from weir.proxy.logging_format import set_up
from weir.proxy.relay.levels import Certified
from weir.proxy.server import serve
from weir.proxy.sessions.access_keys import warning_of
from weir.store.config import StoreConfig
from weir.store.parent_death import end_with_parent

logger = logging.getLogger("weir.proxy.worker")


class Order(msgspec.Struct):
    """The settings of a worker; its port is held by the parent."""

    config: str
    store: str
    model_path: str | None
    model_name: str
    upstream_url: str
    certified: Certified
    parent: int


class StartupMessage(msgspec.Struct):
    """A worker's one report: the line that announces it, or why it cannot serve. Neither: it died before."""

    ready: str | None = None
    failed: str | None = None


def order_of(served: Served, port: int) -> bytes:
    """A worker's order, encoded for its stdin."""
    config = served.config.model_copy(update={"port": port})
    order = Order(
        config=config.model_dump_json(exclude_unset=True),
        store=served.store.model_dump_json(exclude_unset=True),
        model_path=str(served.model_path) if served.model_path is not None else None,
        model_name=served.model_name,
        upstream_url=served.upstream_url,
        certified=served.certified,
        parent=os.getpid(),
    )
    return msgspec.json.encode(order)


def prepare(config: ProxyConfig) -> None:
    """Set up logging and the tokenizer's threads, once in every process that serves calls."""
    # One text at a time is tokenised, on the event loop's thread: a pool of threads would only be woken in vain.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    set_up(config.log_format, config.log_level)
    if config.log_prompts:
        logger.warning("prompts and answers are written to this log (proxy.log_prompts = true)")
    if (warning := warning_of(config.access_keys, config.host)) is not None:
        logger.warning(warning)


def main() -> None:
    """Serve by the order on stdin; the only argument is the pipe's file descriptor."""
    end_with_parent(signal.SIGTERM)
    pipe = os.fdopen(int(sys.argv[1]), "wb")
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    if os.getppid() != order.parent:
        return  # the parent died before the kernel was asked to signal its death

    def report(message: StartupMessage) -> None:
        pipe.write(msgspec.json.encode(message) + b"\n")
        pipe.flush()

    served = Served(
        config=ProxyConfig.model_validate_json(order.config),
        store=StoreConfig.model_validate_json(order.store),
        model_path=Path(order.model_path) if order.model_path is not None else None,
        model_name=order.model_name,
        upstream_url=order.upstream_url,
        certified=order.certified,
    )
    prepare(served.config)
    try:
        listener = bind(served.config.host, served.config.port, shared=True)
        uvloop.run(serve(served, listener, lambda line: report(StartupMessage(ready=line))))
    except Exception as error:
        exit_code = getattr(error, "exit_code", None)
        if exit_code is None:
            raise
        report(StartupMessage(failed=str(error)))
        sys.exit(exit_code)


if __name__ == "__main__":
    main()
