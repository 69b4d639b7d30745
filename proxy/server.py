"""One proxy process: its parts are built here, served by uvicorn, and closed in order.

Invariant: the process is registered with its peers before it accepts a call. On SIGTERM it stops being ready, then
accepts no new call; calls in flight finish up to a limit, peers can reach it until then, and the log is drained and
closed last. The garbage collector is frozen after the start, so that long-lived objects are never scanned again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import uvicorn

from weir.proxy.app import App
from weir.proxy.assembly import Parts, Served, assemble
from weir.proxy.control.gates import GateControl
from weir.proxy.control.handover import Handover
from weir.proxy.control.peers import Peers
from weir.proxy.control.routes import control_app
from weir.proxy.control.service import Control, control_key
from weir.proxy.engines.gate import Gate
from weir.proxy.engines.router import RouterClient, RouterFailed
from weir.proxy.engines.watch import CHECK_LIMIT_S, EngineWatch, ended
from weir.proxy.errors import UpstreamNotReached
from weir.proxy.http.admission import Admission
from weir.proxy.http.http_protocol import BoundedHttp
from weir.proxy.http.sockets import BACKLOG, raise_file_limit, url_of
from weir.proxy.metrics import Metrics
from weir.proxy.pipeline.client_retries import ClientRetries
from weir.proxy.recording.call_log import CallLog
from weir.proxy.recording.record_sink import RecordSink
from weir.proxy.recording.refusals import Refusals
from weir.proxy.relay.levels import Level
from weir.proxy.sessions.access_keys import Keys, are_required
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.sessions.idleness import Idleness
from weir.proxy.sessions.session_book import SessionBook
from weir.proxy.stitching.call_cache import CallCache
from weir.proxy.stitching.store_lookup import StoreLookup
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import asleep_engines
from weir.store.catalog.rows import Recording
from weir.store.config import StoreConfig
from weir.store.errors import StoreError
from weir.store.log.writer import LogWriter
from weir.store.shared.log import LogSharing

logger = logging.getLogger("weir.proxy.server")

CONTINUE_RETRY_S = 1.0  # between two attempts to let paused engines continue
RECOVERY_POLL_S = 0.5  # between two looks whether an engine is fit to serve, while the gate is abandoned
PEER_LIMIT_S = 5  # how long peers' requests may take to finish after the last call


class Proxy:
    """The parts of a running proxy. Built inside the event loop that serves it."""

    def __init__(self, served: Served) -> None:
        config, store = served.config, served.store
        self.config = config
        self.certified = served.certified
        self.draining = False
        self._names = served.names
        self._refuses_unrecorded = store.on_store_failure == "refuse"
        self._has_engines = self.certified.level in (Level.TOKENS, Level.PASSTHROUGH)  # that are ours to pause
        self._background: set[asyncio.Task[None]] = set()
        self._open_store(store)
        self.metrics = Metrics()
        self.gate = Gate(config.gate_limit_s, on_expired=self._wake_engines, on_abandoned=self._recover_engines)
        self.admission = Admission(config.max_concurrent + config.max_queued)
        parts = self._parts(store)
        self.assembled = assemble(served, parts)
        self.upstream = self.assembled.upstream
        self.rendering = self.assembled.rendering
        self.departures = self.assembled.departures
        self._open_control(served, parts)
        self._register_gauges()

    def _open_store(self, store: StoreConfig) -> None:
        """The catalog, this process among its peers, and its log."""
        self.control_key = control_key(self.config.control_key, store.folder)
        self.catalog = Catalog.open(store)
        self.peers = Peers(self.catalog, store.folder, self.control_key)
        self.log_sharing = LogSharing(store, self.catalog, self.peers.writer)
        self.log = LogWriter(store.folder, self.peers.writer, store)

    def _parts(self, store: StoreConfig) -> Parts:
        """What a pipeline of any level is built from."""
        config = self.config
        self.memory = CallCache(config.stitch_memory_bytes)
        self.lookup = StoreLookup(store, self.catalog, self.memory, self.metrics)
        self.budgets = Budgets(self.catalog, self.metrics)
        self.refusals = Refusals(self.catalog)
        refuse_finished = config.finished_sessions == "refuse"
        self.idleness = Idleness(self.catalog, config.idle_finish_s, self.metrics, refuse_finished=refuse_finished)
        self.retries = ClientRetries(self.lookup, self.metrics, config.retry_grace_s, Handover(self.peers))
        self.sink = RecordSink(
            self.log,
            CallLog(self.metrics, log_prompts=config.log_prompts),
            self.metrics,
            answer_unrecorded=not self._refuses_unrecorded,
        )
        return Parts(
            gate=self.gate,
            metrics=self.metrics,
            admission=self.admission,
            retries=self.retries,
            sessions=SessionBook(self.catalog, refuse_finished=refuse_finished, serve_keys=config.serve_keys),
            idleness=self.idleness,
            budgets=self.budgets,
            memory=self.memory,
            lookup=self.lookup,
            sink=self.sink,
            intents=self.log.intents,
            catalog=self.catalog,
            on_trouble=lambda: self.engines.nudge(),
        )

    def _open_control(self, served: Served, parts: Parts) -> None:
        """The gates of all workers, the watch over the engines, and the ASGI app with its control routes."""
        config = self.config
        self.gates = GateControl(
            self.gate,
            self.peers,
            config.drain_limit_s,
            self.state,
            self.metrics,
            always_drains=self.certified.level is not Level.TOKENS,
            adapter_name=config.adapter_name,
            on_left_out=lambda engines: self.engines.leave_out(engines),
        )
        self.engines = EngineWatch(
            RouterClient(served.upstream_url),
            self.gate,
            self.catalog,
            announced=lambda: self.gates.announced,
            folder=self.peers.folder,
            period_s=config.engine_check_s,
            assumed_version=config.assumed_version,
            ask_watcher=lambda: self.gates.notify_workers("/weir/worker/check_engines", CHECK_LIMIT_S),
        )
        control = Control(
            key=self.control_key,
            public_url=config.public_url,
            gates=self.gates,
            catalog=self.catalog,
            sessions=parts.sessions,
            is_ready=self.is_ready,
            check_engines=self._check_engines,
            has_in_flight=self.retries.has_in_flight,
            group_of=self.lookup.group_of,
        )
        keys = Keys(self.catalog, required=are_required(config.access_keys, config.host))
        app = control_app(control)
        self.app = App(
            self.assembled.pipeline,
            app,
            self.metrics,
            keys=keys,
            refusals=self.refusals,
            cors_origins=config.cors_origins,
        )

    def state(self) -> dict[str, Any]:
        """The state of this process, as /weir/worker/state reports it."""
        return {
            "worker": self.peers.writer,
            "draining": self.draining,
            "gate": self.gate.state.value,
            "serve_passes": self.gate.serve_passes,
            "opened_by_limit": self.gate.opened_by_limit,
            "gate_abandoned": self.gate.is_abandoned,
            "weight_version": self.sink.last_version,
            "in_flight": self.gate.in_flight,
            "in_flight_limit": self.departures.limit.calls,
            "waiting": self.departures.waiting,
            "held": self.departures.held,
            "refused_by_upstream": self.departures.num_refused,
            "calls": self.sink.num_calls,
            "records_lost": self.sink.records_lost,
            "record_queue": self.log.stats.queue_depth,
            "record_failure": self.log.stats.failure,
            "level": self.certified.level.value,
            "remarks": list(self.certified.remarks),
            "models": list(self._names),
            "renderer": self.rendering.name if self.rendering is not None else None,
            "rendering": self.rendering.facts() if self.rendering is not None else None,
            "engines_out": self.engines.out(),
        }

    def recording(self) -> Recording:
        """The state of recording, for the store's status."""
        log = self.log.stats
        return Recording(
            failed=log.failed, unrecorded=self.sink.records_lost, waiting=log.queue_depth, failure=log.failure
        )

    async def is_ready(self) -> bool:
        """Whether load balancers should send new calls here."""
        would_refuse = self._refuses_unrecorded and self.log.stats.failure is not None
        return not self.draining and not would_refuse and await self.assembled.is_there()

    @contextlib.asynccontextmanager
    async def joined(self, url: str) -> AsyncIterator[None]:
        """Around serving: registered with the peers as a process that serves `url`, and reachable by them."""
        server = uvicorn_server(self.app, PEER_LIMIT_S)
        serving = asyncio.create_task(server.serve(sockets=[self.peers.listen()]))
        try:
            await self.peers.join(url, self.recording)
            await self.gates.follow()
            if self._has_engines:
                self.engines.start()
            self.idleness.start()
            yield
        finally:
            await self.engines.close()
            await self.gates.close()
            await self.peers.leave()
            server.should_exit = True
            await serving

    async def close(self) -> None:
        """Close the parts in the order in which calls depend on them; the log last."""
        for task in self._background:
            task.cancel()
        await self.engines.close()  # again, where nothing was ever joined
        await self.assembled.close()
        await self.upstream.close()
        await self.budgets.close()
        await self.idleness.close()
        await self.refusals.close()
        await asyncio.to_thread(self.log.close)
        await asyncio.to_thread(self.log_sharing.close)
        self.catalog.close()

    def _wake_engines(self) -> None:
        """Let paused engines continue, once it is known which of them sleep: whoever closed the gate is gone."""
        if self._has_engines:
            self._run_aside(self._continue_engines())

    async def _continue_engines(self) -> None:
        while self.gate.is_open:
            try:
                asleep = await asyncio.to_thread(asleep_engines, self.catalog)
                await self.upstream.continue_engines(asleep=asleep)
            except (StoreError, UpstreamNotReached) as error:
                logger.warning("paused engines do not continue yet, which is tried again: %s", error)
                await asyncio.sleep(CONTINUE_RETRY_S)
            else:
                return

    async def _check_engines(self) -> None:
        """Another worker was failed by an engine: returns once they are checked, where this is the one that does."""
        if self.engines.watches:
            await ended(self.engines.nudge())

    def _recover_engines(self) -> None:
        """Open the abandoned gate, once there is an engine that is fit to serve."""
        if self._has_engines:
            self._run_aside(self._open_with_an_engine())
        else:
            self.gate.open_abandoned()

    async def _open_with_an_engine(self) -> None:
        told = ""
        while self.gate.is_abandoned:
            try:
                if await self.engines.recover():
                    self.gate.open_abandoned()
                    return
            except (StoreError, RouterFailed) as error:
                if str(error) != told:
                    logger.warning("the gate stays closed, since no engine was found fit to serve: %s", error)
                told = str(error)
            await asyncio.sleep(RECOVERY_POLL_S)

    def _run_aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _register_gauges(self) -> None:
        self.metrics.set_level(self.certified.level.value)
        gauge = self.metrics.gauge
        gauge("weir_in_flight", "Pieces of calls that engines work on.", lambda: self.gate.in_flight)
        gauge("weir_in_flight_limit", "Pieces that may be at engines now.", lambda: self.departures.limit.calls)
        gauge("weir_waiting", "Calls that wait for their turn.", lambda: self.departures.waiting)
        gauge("weir_held", "Calls that wait for the gate.", lambda: self.departures.held)
        gauge("weir_refused", "Pieces that the upstream refused or lost.", lambda: self.departures.num_refused)
        gauge("weir_gate_open", "1 while the gate is open.", lambda: self.gate.is_open)
        gauge("weir_gate_expired", "Times that the gate opened by its limit or lease.", lambda: self.gate.times_expired)
        gauge(
            "weir_engines_out",
            "Engines that were taken out of the router's rotation.",
            lambda: len(self.engines.out()) if self.engines.watches else 0,
        )
        gauge("weir_record_queue", "Records that wait for the log.", lambda: self.log.stats.queue_depth)
        gauge("weir_record_failures", "Records that the log did not take.", lambda: self.log.stats.failed)
        gauge("weir_record_writing_seconds", "How long the log's write takes so far.", lambda: self.log.stats.writing_s)
        gauge("weir_log_segments", "Segments of this process's log: compaction deletes them.", self.log.count_segments)
        gauge("weir_stitch_calls", "Calls remembered for stitching.", lambda: len(self.memory))


async def serve(served: Served, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve a bound socket until SIGTERM or SIGINT; `ready` gets the line with the base URL once calls are accepted.

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
            ready(f"base_url {url}/v1 ({_description(proxy, served.model_name)})")
            await server.serve(sockets=[listener])
            await asyncio.gather(*server.server_state.tasks, return_exceptions=True)  # calls that the limit cut
    finally:
        await proxy.close()


def _description(proxy: Proxy, model_name: str) -> str:
    """Model and renderer or level, for the line with the base URL; logs what is to be known of them."""
    for remark in proxy.certified.remarks:
        logger.warning("level %s: %s", proxy.certified.level.value, remark)
    if proxy.rendering is not None:
        for subject, fact in proxy.rendering.facts().items():
            logger.info("%s: %s", subject, fact)
    served = (
        f"renderer {proxy.rendering.name}" if proxy.rendering is not None else f"level {proxy.certified.level.value}"
    )
    return f"model {model_name}, {served}"


def _drain(proxy: Proxy, server: uvicorn.Server, number: int) -> None:
    """Stop being ready; stop accepting calls after the shutdown notice."""
    proxy.draining = True
    asyncio.get_running_loop().call_later(proxy.config.shutdown_notice_s, server.handle_exit, number, None)


class _Server(uvicorn.Server):
    """Leaves signals to `serve`: uvicorn raises them again after its shutdown, before the log could be closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def uvicorn_server(app: App, shutdown_limit_s: float) -> uvicorn.Server:
    """The HTTP server of a proxy, without uvicorn's features that cost time and are not used."""
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
