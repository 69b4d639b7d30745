"""One proxy process: everything is built here, served by uvicorn, and closed in order.

Invariant: it is known to its peers before it accepts a call. On SIGTERM it is no longer ready, then no new call is
accepted, those in flight finish up to a limit, peers reach it until then, and the log is drained and closed last. The
collector is frozen after the start: what lives as long as the process is never walked again. Not here: several
processes (supervisor.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from weir.proxy.admission import Admission
from weir.proxy.app import App
from weir.proxy.bounded_http import BoundedHttp
from weir.proxy.budgets import Budgets
from weir.proxy.config import ProxyConfig
from weir.proxy.control import Control, control_key
from weir.proxy.control_routes import control_app
from weir.proxy.engine_watch import EngineWatch
from weir.proxy.errors import SetupError
from weir.proxy.following import Following
from weir.proxy.gate import Gate
from weir.proxy.gate_control import GateControl
from weir.proxy.generation import Generation
from weir.proxy.handing_over import HandingOver
from weir.proxy.journal import Journal
from weir.proxy.keys import Keys, are_required
from weir.proxy.listening import BACKLOG, raise_file_limit, url_of
from weir.proxy.metrics import Metrics
from weir.proxy.peers import Peers
from weir.proxy.recorder import Recorder
from weir.proxy.rendering import context_length, open_rendering
from weir.proxy.response_memory import ResponseMemory
from weir.proxy.responses_of_old import Responses
from weir.proxy.retries import Retries
from weir.proxy.rotation import Rotation
from weir.proxy.serving import Serving
from weir.proxy.sessions import SessionBook
from weir.proxy.stitch_memory import StitchMemory
from weir.proxy.stitching import Stitching
from weir.proxy.upstream import Upstream
from weir.store.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.log import LogWriter
from weir.store.records import CaptureLevel

logger = logging.getLogger("weir.proxy.server")


PEER_LIMIT_S = 5  # how long peers' requests may take to finish once all calls have


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a proxy serves, and where it records it."""

    config: ProxyConfig
    store: StoreConfig
    model_path: Path
    model_name: str
    upstream_url: str


class Proxy:
    """The parts of a running proxy. Built inside the event loop that serves it."""

    def __init__(self, served: Served) -> None:
        config, store, model_path = served.config, served.store, served.model_path
        model_name = served.model_name
        self.config = config
        self.rendering = open_rendering(model_path, model_name, config)
        self.control_key = control_key(config.control_key, store.root)
        self.catalog = Catalog.open(store)
        self.peers = Peers(self.catalog, store.root, self.control_key)
        self.log = LogWriter(store.root, self.peers.writer, store)
        self.metrics = Metrics()
        self.upstream = Upstream(served.upstream_url, config)
        self.gate = Gate(config.gate_limit_s, on_expired=self._wake_engines)
        self.draining = False
        self._waking: asyncio.Task[None] | None = None
        self._nudging: asyncio.Task[None] | None = None
        self.memory = StitchMemory(config.stitch_memory_bytes)
        self.following = Following(store, self.catalog, self.memory, self.metrics)
        self.budgets = Budgets(self.catalog, self.metrics)
        self.responses = ResponseMemory(config.response_memory_bytes)
        self.recorder = Recorder(
            rendering=self.rendering,
            memory=self.memory,
            responses=self.responses,
            budgets=self.budgets,
            log=self.log,
            answer_unrecorded=store.on_store_failure == "answer",
            metrics=self.metrics,
            journal=Journal(self.metrics, log_prompts=config.log_prompts),
        )
        sessions = SessionBook(self.catalog, refuse_finished=config.finished_sessions == "refuse")
        self.admission = Admission(config.max_concurrent, config.max_queued)
        self.retries = Retries(self.following, self.metrics, config.retry_grace_s, HandingOver(self.peers))
        self.serving = Serving(
            config=config,
            model_names=(model_name, *config.model_aliases),
            max_model_len=_max_model_len(config, model_path),
            rendering=self.rendering,
            stitching=Stitching(self.rendering, self.memory, self.following),
            retries=self.retries,
            responses=Responses(self.responses, self.following),
            generation=Generation(
                self.upstream, self.gate, self.rendering.stop_ids, config, self.metrics, on_trouble=self._on_trouble
            ),
            sessions=sessions,
            budgets=self.budgets,
            recorder=self.recorder,
            metrics=self.metrics,
        )
        self.gates = GateControl(self.gate, self.peers, config.drain_limit_s, self.state, self.metrics)
        self.engines = EngineWatch(
            Rotation(served.upstream_url),
            self.gate,
            self.catalog,
            announced=lambda: self.gates.announced,
            folder=self.peers.folder,
            period_s=config.engine_check_s,
        )
        control = Control(
            key=self.control_key,
            public_url=config.public_url,
            gates=self.gates,
            catalog=self.catalog,
            sessions=sessions,
            is_ready=self.is_ready,
            check_engines=self.engines.nudge,
            has_in_flight=self.retries.has_in_flight,
        )
        self.app = App(
            self.serving,
            control_app(control),
            self.metrics,
            keys=Keys(self.catalog, required=are_required(config.access_keys, config.host)),
            admission=self.admission,
        )
        self._watch_gauges()

    def state(self) -> dict[str, Any]:
        """What is true of this proxy now."""
        return {
            "worker": self.peers.writer,
            "draining": self.draining,
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
            "engines_out": self.engines.out(),
        }

    async def is_ready(self) -> bool:
        """Whether new calls should come here."""
        return not self.draining and await self.upstream.has_workers()

    @contextlib.asynccontextmanager
    async def joined(self, url: str) -> AsyncIterator[None]:
        """Known to the peers as one that serves `url`, and reached by them."""
        server = uvicorn_server(self.app, PEER_LIMIT_S)
        serving = asyncio.create_task(server.serve(sockets=[self.peers.listen()]))
        try:
            await self.peers.join(url)
            await self.gates.follow()
            self.engines.start()
            yield
        finally:
            await self.engines.close()
            await self.gates.close()
            await self.peers.leave()
            server.should_exit = True
            await serving

    async def close(self) -> None:
        """Close in the order in which calls depend on the parts; the log last."""
        await self.upstream.close()
        await self.budgets.close()
        await asyncio.to_thread(self.log.close)
        self.catalog.close()

    def _wake_engines(self) -> None:
        self._waking = asyncio.create_task(self.upstream.continue_engines())

    def _on_trouble(self) -> None:
        """An engine failed a call: whoever watches is to look now."""
        self.engines.nudge()
        if not self.engines.watches and (self._nudging is None or self._nudging.done()):
            self._nudging = asyncio.create_task(self.gates.tell_workers("/weir/worker/check_engines"))

    def _watch_gauges(self) -> None:
        self.metrics.set_level(CaptureLevel.TOKENS.value)
        watch = self.metrics.watch
        watch("weir_in_flight", "Pieces of calls that engines work on.", lambda: self.gate.in_flight)
        watch("weir_queued", "Requests that wait for their turn.", lambda: self.admission.queued)
        watch("weir_held", "Calls that wait at the gate.", lambda: self.gate.held)
        watch("weir_gate_open", "1 while the gate is open.", lambda: self.gate.is_open)
        watch("weir_gate_expired", "Times that the gate opened by its limit.", lambda: self.gate.times_expired)
        watch(
            "weir_engines_out",
            "Engines that were taken out of the router's rotation.",
            lambda: len(self.engines.out()) if self.engines.watches else 0,
        )
        watch("weir_record_queue", "Records that wait for the log.", lambda: self.log.stats.queue_depth)
        watch("weir_stitch_calls", "Calls remembered for stitching.", lambda: len(self.memory))


async def serve(served: Served, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve a bound socket until SIGTERM or SIGINT; `ready` is told the base URL once calls are accepted.

    Raises `SetupError` or `StoreError`.
    """
    raise_file_limit()
    proxy = Proxy(served)
    server = uvicorn_server(proxy.app, served.config.shutdown_limit_s)
    gc.collect()
    gc.freeze()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _drain, proxy, server, number)
    url = url_of(listener)
    try:
        async with proxy.joined(url):
            listener.listen(BACKLOG)
            ready(f"base_url {url}/v1 (model {served.model_name}, renderer {proxy.rendering.name})")
            await server.serve(sockets=[listener])
            await asyncio.gather(*server.server_state.tasks, return_exceptions=True)  # those that the limit cut
    finally:
        await proxy.close()


def _drain(proxy: Proxy, server: uvicorn.Server, number: int) -> None:
    """Not ready from now on; after the notice, nothing more is accepted."""
    proxy.draining = True
    asyncio.get_running_loop().call_later(proxy.config.shutdown_notice_s, server.handle_exit, number, None)


class _Server(uvicorn.Server):
    """Leaves signals to `serve`: uvicorn raises them again after its shutdown, before the log could be closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def uvicorn_server(app: App, shutdown_limit_s: float) -> uvicorn.Server:
    """The HTTP server of a proxy, with everything off that costs and is not used."""
    return _Server(
        uvicorn.Config(
            app,
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, int(shutdown_limit_s)),
        )
    )


def _max_model_len(config: ProxyConfig, model_path: Path) -> int:
    length = config.max_model_len or context_length(model_path)
    if length is None:
        raise SetupError(
            f"the context length of {model_path} is unknown: its config.json has no max_position_embeddings; "
            "set proxy.max_model_len"
        )
    return length
