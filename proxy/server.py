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

from weir.proxy.app import App
from weir.proxy.config import ProxyConfig
from weir.proxy.control.gates import GateControl
from weir.proxy.control.handover import HandingOver
from weir.proxy.control.peers import Peers
from weir.proxy.control.routes import control_app
from weir.proxy.control.service import Control, control_key
from weir.proxy.engines.client import Upstream
from weir.proxy.engines.gate import Gate
from weir.proxy.engines.router import Rotation
from weir.proxy.engines.versions import EngineVersions
from weir.proxy.engines.watch import EngineWatch
from weir.proxy.errors import SetupError
from weir.proxy.http.admission import Admission
from weir.proxy.http.http_protocol import BoundedHttp
from weir.proxy.http.sockets import BACKLOG, raise_file_limit, url_of
from weir.proxy.metrics import Metrics
from weir.proxy.recording.call_log import Journal
from weir.proxy.recording.recorder import Recorder
from weir.proxy.relay.client import RelayUpstream
from weir.proxy.relay.levels import AT_TOKENS, Certified, Level
from weir.proxy.relay.pipeline import Relay
from weir.proxy.relay.recorder import RelayRecorder
from weir.proxy.rendering.renderer import Rendering, context_length, open_rendering
from weir.proxy.serving.generate import Generation
from weir.proxy.serving.pipeline import Serving
from weir.proxy.serving.prepare import Opening
from weir.proxy.serving.previous_responses import Responses
from weir.proxy.serving.retries import Retries
from weir.proxy.sessions.access_keys import Keys, are_required
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.sessions.session_book import SessionBook
from weir.proxy.stitching.call_cache import StitchMemory
from weir.proxy.stitching.continuation import Stitching
from weir.proxy.stitching.raw_prompts import RawPrompts
from weir.proxy.stitching.response_cache import ResponseMemory
from weir.proxy.stitching.store_lookup import Following
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import Recording
from weir.store.config import StoreConfig
from weir.store.log.writer import LogWriter
from weir.store.shared.log import LogSharing

logger = logging.getLogger("weir.proxy.server")


PEER_LIMIT_S = 5  # how long peers' requests may take to finish once all calls have


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a proxy serves, and where it records it."""

    config: ProxyConfig
    store: StoreConfig
    model_path: Path | None  # only level `tokens` needs one
    model_name: str
    upstream_url: str
    certified: Certified = AT_TOKENS  # what the upstream was found to give


class Proxy:
    """The parts of a running proxy. Built inside the event loop that serves it."""

    def __init__(self, served: Served) -> None:
        config, store = served.config, served.store
        self.config = config
        self.certified = served.certified
        self.control_key = control_key(config.control_key, store.folder)
        self.catalog = Catalog.open(store)
        self.peers = Peers(self.catalog, store.folder, self.control_key)
        self.log_sharing = LogSharing(store, self.catalog, self.peers.writer)
        self.log = LogWriter(store.folder, self.peers.writer, store)
        self.metrics = Metrics()
        self.upstream = Upstream(served.upstream_url, config)
        self.gate = Gate(config.gate_limit_s, on_expired=self._wake_engines)
        self.draining = False
        self._refuses_unrecorded = store.on_store_failure == "refuse"
        self._waking: asyncio.Task[None] | None = None
        self._nudging: asyncio.Task[None] | None = None
        self.memory = StitchMemory(config.stitch_memory_bytes)
        self.following = Following(store, self.catalog, self.memory, self.metrics)
        self.budgets = Budgets(self.catalog, self.metrics)
        self.responses = ResponseMemory(config.response_memory_bytes)
        self.journal = Journal(self.metrics, log_prompts=config.log_prompts)
        sessions = SessionBook(self.catalog, refuse_finished=config.finished_sessions == "refuse")
        self.admission = Admission(config.max_concurrent, config.max_queued)
        self.retries = Retries(self.following, self.metrics, config.retry_grace_s, HandingOver(self.peers))
        self.rendering: Rendering | None = None
        self.recorder: Recorder | RelayRecorder
        self.serving: Serving | Relay
        self._has_engines = self.certified.level in (Level.TOKENS, Level.PASSTHROUGH)  # that are ours to pause
        self._names = (served.model_name, *config.model_aliases)
        relays = self.certified.level is not Level.TOKENS
        self.relayed = RelayUpstream(served.upstream_url, config) if relays else None
        if relays:
            self._relay(sessions, answer_unrecorded=store.on_store_failure == "answer")
        else:
            assert served.model_path is not None
            self._render(served.model_path, sessions, answer_unrecorded=store.on_store_failure == "answer")
        self.gates = GateControl(
            self.gate, self.peers, config.drain_limit_s, self.state, self.metrics, always_drains=relays
        )
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
            group_of=self.following.group_of,
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
            "record_failure": self.log.stats.failure,
            "level": self.certified.level.value,
            "remarks": list(self.certified.remarks),
            "models": list(self._names),
            "renderer": self.rendering.name if self.rendering is not None else None,
            "engines_out": self.engines.out(),
        }

    def recording(self) -> Recording:
        """How recording goes now, for those who look at the store."""
        log = self.log.stats
        return Recording(
            failed=log.failed, unrecorded=self.recorder.records_lost, waiting=log.queue_depth, failure=log.failure
        )

    async def is_ready(self) -> bool:
        """Whether new calls should come here."""
        is_there = self.upstream.has_workers if self.relayed is None else self.relayed.is_there
        would_refuse = self._refuses_unrecorded and self.log.stats.failure is not None
        return not self.draining and not would_refuse and await is_there()

    def _render(self, folder: Path, sessions: SessionBook, *, answer_unrecorded: bool) -> None:
        """Level `tokens`: the proxy renders and parses."""
        self.rendering = open_rendering(folder, self._names[0], self.config)
        raw_prompts = RawPrompts(self.rendering, self.config.stitch_memory_bytes // 4)
        self.recorder = Recorder(
            rendering=self.rendering,
            memory=self.memory,
            raw_prompts=raw_prompts,
            responses=self.responses,
            budgets=self.budgets,
            log=self.log,
            answer_unrecorded=answer_unrecorded,
            metrics=self.metrics,
            journal=self.journal,
        )
        self.serving = Serving(
            config=self.config,
            model_names=self._names,
            rendering=self.rendering,
            opening=Opening(
                max_model_len=_max_model_len(self.config, folder),
                rendering=self.rendering,
                stitching=Stitching(self.rendering, self.memory, self.following),
                raw_prompts=raw_prompts,
                sessions=sessions,
                budgets=self.budgets,
                metrics=self.metrics,
            ),
            retries=self.retries,
            responses=Responses(self.responses, self.following),
            generation=Generation(
                self.upstream,
                self.gate,
                self.config,
                self.metrics,
                on_trouble=self._on_trouble,
            ),
            recorder=self.recorder,
        )

    def _relay(self, sessions: SessionBook, *, answer_unrecorded: bool) -> None:
        """The other levels: what agents send and get passes as it is."""
        assert self.relayed is not None
        versions = EngineVersions(self.gate, self.relayed.versions, self.config.assumed_version)
        self.recorder = RelayRecorder(
            memory=self.memory,
            versions=versions,
            budgets=self.budgets,
            log=self.log,
            answer_unrecorded=answer_unrecorded,
            metrics=self.metrics,
            journal=self.journal,
        )
        self.serving = Relay(
            config=self.config,
            retries=self.retries,
            certified=self.certified,
            upstream=self.relayed,
            gate=self.gate,
            versions=versions,
            sessions=sessions,
            budgets=self.budgets,
            memory=self.memory,
            following=self.following,
            recorder=self.recorder,
            metrics=self.metrics,
        )

    @contextlib.asynccontextmanager
    async def joined(self, url: str) -> AsyncIterator[None]:
        """Known to the peers as one that serves `url`, and reached by them."""
        server = uvicorn_server(self.app, PEER_LIMIT_S)
        serving = asyncio.create_task(server.serve(sockets=[self.peers.listen()]))
        try:
            await self.peers.join(url, self.recording)
            await self.gates.follow()
            if self._has_engines:
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
        if self.relayed is not None:
            await self.relayed.close()
        await self.budgets.close()
        await asyncio.to_thread(self.log.close)
        await asyncio.to_thread(self.log_sharing.close)
        self.catalog.close()

    def _wake_engines(self) -> None:
        if self._has_engines:
            self._waking = asyncio.create_task(self.upstream.continue_engines())

    def _on_trouble(self) -> None:
        """An engine failed a call: whoever watches is to look now."""
        self.engines.nudge()
        if not self.engines.watches and (self._nudging is None or self._nudging.done()):
            self._nudging = asyncio.create_task(self.gates.tell_workers("/weir/worker/check_engines"))

    def _watch_gauges(self) -> None:
        self.metrics.set_level(self.certified.level.value)
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
        watch("weir_record_failures", "Records that the log did not take.", lambda: self.log.stats.failed)
        watch("weir_record_writing_seconds", "How long the log's write takes so far.", lambda: self.log.stats.writing_s)
        watch("weir_log_segments", "Segments of this process's log: compaction deletes them.", self.log.count_segments)
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
            ready(f"base_url {url}/v1 ({_way(proxy, served.model_name)})")
            await server.serve(sockets=[listener])
            await asyncio.gather(*server.server_state.tasks, return_exceptions=True)  # those that the limit cut
    finally:
        await proxy.close()


def _way(proxy: Proxy, model_name: str) -> str:
    """What is served, in words for the line that says the base_url."""
    for remark in proxy.certified.remarks:
        logger.warning("level %s: %s", proxy.certified.level.value, remark)
    way = f"renderer {proxy.rendering.name}" if proxy.rendering is not None else f"level {proxy.certified.level.value}"
    return f"model {model_name}, {way}"


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
