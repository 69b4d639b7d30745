"""One proxy process: everything is built here, served by uvicorn, and closed in order.

Invariant: on SIGTERM no new call is accepted, those in flight finish up to a limit, and the log is drained and closed
last. The collector is frozen after the start: what lives as long as the process is never walked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from weir.proxy.app import App
from weir.proxy.config import ProxyConfig
from weir.proxy.control import Control, control_app, control_key
from weir.proxy.errors import SetupError
from weir.proxy.gate import Gate
from weir.proxy.generation import Generation
from weir.proxy.metrics import Metrics
from weir.proxy.recorder import Recorder
from weir.proxy.rendering import context_length, open_rendering
from weir.proxy.serving import Serving
from weir.proxy.sessions import SessionBook
from weir.proxy.stitching import StitchMemory
from weir.proxy.upstream import Upstream
from weir.store.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.ids import new_id
from weir.store.log import LogWriter
from weir.store.records import CaptureLevel

logger = logging.getLogger("weir.proxy.server")


class Proxy:
    """The parts of a running proxy. Built inside the event loop that serves it."""

    def __init__(
        self, config: ProxyConfig, store: StoreConfig, *, model_path: Path, model_name: str, upstream_url: str
    ) -> None:
        self.config = config
        self.rendering = open_rendering(model_path, model_name, config)
        self.control_key = control_key(config.control_key, store.root)
        self.catalog = Catalog.open(store)
        self.log = LogWriter(store.root, f"{new_id('proxy')}-{os.getpid()}", store)
        self.metrics = Metrics()
        self.upstream = Upstream(upstream_url, config)
        self.gate = Gate(config.gate_limit_s, on_expired=self._wake_engines)
        self._waking: asyncio.Task[None] | None = None
        self.memory = StitchMemory(config.stitch_memory_bytes)
        self.recorder = Recorder(
            rendering=self.rendering,
            memory=self.memory,
            log=self.log,
            answer_unrecorded=store.on_store_failure == "answer",
            metrics=self.metrics,
        )
        sessions = SessionBook(self.catalog)
        self.serving = Serving(
            config=config,
            model_names=(model_name, *config.model_aliases),
            max_model_len=_max_model_len(config, model_path),
            rendering=self.rendering,
            memory=self.memory,
            generation=Generation(self.upstream, self.gate, self.rendering.stop_ids, config, self.metrics),
            sessions=sessions,
            recorder=self.recorder,
            metrics=self.metrics,
        )
        control = Control(
            key=self.control_key,
            public_url=config.public_url,
            drain_limit_s=config.drain_limit_s,
            gate=self.gate,
            catalog=self.catalog,
            sessions=sessions,
            metrics=self.metrics,
            state=self.state,
            is_ready=self.upstream.has_workers,
        )
        self.app = App(self.serving, control_app(control), self.metrics)
        self._watch_gauges()

    def state(self) -> dict[str, Any]:
        """What is true of this proxy now."""
        return {
            "gate": self.gate.state.value,
            "opened_by_limit": self.gate.opened_by_limit,
            "weight_version": self.recorder.last_version,
            "in_flight": self.gate.in_flight,
            "held": self.gate.held,
            "calls": self.recorder.num_calls,
            "records_lost": self.recorder.records_lost,
            "record_queue": self.log.stats.queue_depth,
            "level": CaptureLevel.TOKENS.value,
            "models": list(self.serving.model_names),
            "renderer": self.rendering.name,
        }

    async def close(self) -> None:
        """Close in the order in which calls depend on the parts; the log last."""
        await self.upstream.close()
        await asyncio.to_thread(self.log.close)
        self.catalog.close()

    def _wake_engines(self) -> None:
        self._waking = asyncio.create_task(self.upstream.continue_engines())

    def _watch_gauges(self) -> None:
        watch = self.metrics.watch
        watch("weir_in_flight", "Pieces of calls that engines work on.", lambda: self.gate.in_flight)
        watch("weir_held", "Calls that wait at the gate.", lambda: self.gate.held)
        watch("weir_gate_open", "1 while the gate is open.", lambda: self.gate.is_open)
        watch("weir_gate_expired", "Times that the gate opened by its limit.", lambda: self.gate.times_expired)
        watch("weir_record_queue", "Records that wait for the log.", lambda: self.log.stats.queue_depth)
        watch("weir_stitch_calls", "Calls remembered for stitching.", lambda: len(self.memory))


def run(config: ProxyConfig, store: StoreConfig, *, model_path: Path, model_name: str, upstream_url: str) -> None:
    """Serve until SIGTERM or SIGINT; prints the base_url once it listens. Raises `SetupError` or `StoreError`."""
    # One text at a time is tokenised, on the event loop's thread: a pool of threads would only be woken in vain.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.basicConfig(level=config.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    uvloop.run(_serve(config, store, model_path, model_name, upstream_url))


async def _serve(config: ProxyConfig, store: StoreConfig, model_path: Path, model_name: str, upstream_url: str) -> None:
    listener = _listen(config.host, config.port)
    proxy = Proxy(config, store, model_path=model_path, model_name=model_name, upstream_url=upstream_url)
    server = uvicorn_server(proxy)
    gc.collect()
    gc.freeze()
    host, port = listener.getsockname()[:2]
    print(f"base_url http://{host}:{port}/v1 (model {model_name}, renderer {proxy.rendering.name})", flush=True)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.handle_exit, number, None)
    try:
        await server.serve(sockets=[listener])
    finally:
        await proxy.close()


class _Server(uvicorn.Server):
    """Leaves signals to `_serve`: uvicorn raises them again after its shutdown, before the log could be closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def uvicorn_server(proxy: Proxy) -> uvicorn.Server:
    """The HTTP server of a proxy, with everything off that costs and is not used."""
    return _Server(
        uvicorn.Config(
            proxy.app,
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(proxy.config.shutdown_limit_s),
        )
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SetupError(f"cannot listen on {host}:{port}: {error.strerror}; set proxy.host and proxy.port") from error
    listener.listen(2048)
    return listener


def _max_model_len(config: ProxyConfig, model_path: Path) -> int:
    length = config.max_model_len or context_length(model_path)
    if length is None:
        raise SetupError(
            f"the context length of {model_path} is unknown: its config.json has no max_position_embeddings; "
            "set proxy.max_model_len"
        )
    return length
