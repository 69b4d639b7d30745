"""One worker of a proxy: what it serves comes on stdin; what became of its start goes into a pipe, as one line.

Invariant: it does not outlive its parent: the kernel sends it SIGTERM when the parent dies, and it drains. Not here:
when it is started, and what its end means (supervisor.py).
"""

from __future__ import annotations

import ctypes
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

_PR_SET_PDEATHSIG = 1

logger = logging.getLogger("weir.proxy.worker")


class Order(msgspec.Struct):
    """What a worker is to serve; the port is one that the parent holds."""

    config: str
    store: str
    model_path: str | None
    model_name: str
    upstream_url: str
    certified: Certified
    parent: int


class Word(msgspec.Struct):
    """What a worker says once: that it serves, or why it cannot."""

    ready: str | None = None
    failed: str | None = None


def order_of(served: Served, port: int) -> bytes:
    """The order for a worker, as it is written to its stdin."""
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
    """What is set once in every process that serves calls."""
    # One text at a time is tokenised, on the event loop's thread: a pool of threads would only be woken in vain.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    set_up(config.log_format, config.log_level)
    if config.log_prompts:
        logger.warning("prompts and answers are written to this log (proxy.log_prompts = true)")
    if (warning := warning_of(config.access_keys, config.host)) is not None:
        logger.warning(warning)


def main() -> None:
    """Serve what the order says; the pipe's number is the only argument."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    told = os.fdopen(int(sys.argv[1]), "wb")
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    if os.getppid() != order.parent:
        return  # it died before the kernel was asked to watch it

    def tell(word: Word) -> None:
        told.write(msgspec.json.encode(word) + b"\n")
        told.flush()

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
        uvloop.run(serve(served, listener, lambda line: tell(Word(ready=line))))
    except Exception as error:
        exit_code = getattr(error, "exit_code", None)
        if exit_code is None:
            raise
        tell(Word(failed=str(error)))
        sys.exit(exit_code)


if __name__ == "__main__":
    main()
