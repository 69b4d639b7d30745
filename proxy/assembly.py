"""The pipeline of a proxy, put together for its capture level from the parts that both pipelines share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.client import Upstream
from weir.proxy.engines.connections import Connections
from weir.proxy.engines.context_length import ContextLength
from weir.proxy.engines.departures import Departures
from weir.proxy.engines.engine_settings import EngineSettings
from weir.proxy.engines.gate import Gate
from weir.proxy.engines.grammar_backends import GrammarBackends
from weir.proxy.engines.in_flight_limit import InFlightLimit
from weir.proxy.engines.versions import EngineVersions
from weir.proxy.errors import SetupError
from weir.proxy.http.admission import Admission
from weir.proxy.metrics import Metrics
from weir.proxy.pipeline.answer_guard import AnswerGuard
from weir.proxy.pipeline.client_retries import ClientRetries
from weir.proxy.pipeline.dispatch import Dispatch
from weir.proxy.pipeline.intake import Intake
from weir.proxy.pipeline.protocol import Pipeline
from weir.proxy.recording.record_sink import RecordSink
from weir.proxy.relay.client import RelayUpstream
from weir.proxy.relay.forward import LOST_RETRIES, Forwarding
from weir.proxy.relay.levels import AT_TOKENS, Certified, Level
from weir.proxy.relay.pipeline import RelayPipeline
from weir.proxy.relay.prepare import RelayOpening
from weir.proxy.relay.recorder import RelayRecorder
from weir.proxy.relay.response import Answering
from weir.proxy.rendering.opening import context_length, open_rendering
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.serving.answers import Answers
from weir.proxy.serving.generate import Generation
from weir.proxy.serving.pipeline import TokensPipeline
from weir.proxy.serving.prepare import Opening
from weir.proxy.serving.recorder import Recorder
from weir.proxy.serving.stored_responses import Responses
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.sessions.idleness import Idleness
from weir.proxy.sessions.session_book import SessionBook
from weir.proxy.stitching.call_cache import CallCache
from weir.proxy.stitching.continuation import Stitching
from weir.proxy.stitching.raw_prompts import RawPrompts
from weir.proxy.stitching.response_cache import ResponseCache
from weir.proxy.stitching.store_lookup import StoreLookup
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.log.intents import Intents


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model that a proxy serves, and the store that it records into."""

    config: ProxyConfig
    store: StoreConfig
    model_path: Path | None  # only level `tokens` needs one
    model_name: str
    upstream_url: str
    certified: Certified = AT_TOKENS  # what the upstream was found to give

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of the model that agents may use, its own first."""
        return (self.model_name, *self.config.model_aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a pipeline is built from, whatever its level."""

    gate: Gate
    metrics: Metrics
    admission: Admission
    retries: ClientRetries
    sessions: SessionBook
    idleness: Idleness
    budgets: Budgets
    memory: CallCache
    lookup: StoreLookup
    sink: RecordSink
    intents: Intents
    catalog: Catalog
    on_trouble: Callable[[], asyncio.Future[None]]  # called when an engine failed a call; done once they are checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A pipeline, and what the rest of the proxy needs of it."""

    pipeline: Pipeline
    upstream: Upstream
    departures: Departures
    rendering: Rendering | None  # at level `tokens`
    is_there: Callable[[], Awaitable[bool]]  # whether the upstream can take calls
    close: Callable[[], Awaitable[None]]


def assemble(served: Served, parts: Parts) -> Assembled:
    """The pipeline of a proxy's capture level. Raises `SetupError`, before any connection is opened."""
    if served.certified.level is Level.TOKENS:
        return _tokens(served, parts)
    return _relay(served, parts)


def _tokens(served: Served, parts: Parts) -> Assembled:
    """The proxy renders and parses."""
    config, folder = served.config, served.model_path
    assert folder is not None
    rendering = open_rendering(folder, served.model_name, config)
    longest = _max_model_len(config, folder)
    upstream = Upstream(served.upstream_url, config)
    context = ContextLength(longest, upstream.context_lengths)
    settings = EngineSettings(upstream.server_infos)
    raw_prompts = RawPrompts(rendering, config.stitch_memory_bytes // 4)
    responses = ResponseCache(config.response_memory_bytes)
    recorder = Recorder(
        parts.sink, parts.budgets, rendering, memory=parts.memory, raw_prompts=raw_prompts, responses=responses
    )
    departures = _departures(config, parts.gate, upstream.connections)
    dispatch = Dispatch(
        config,
        parts.gate,
        departures,
        parts.metrics,
        on_trouble=parts.on_trouble,
        lost_retries=config.lost_retries,
        intents=parts.intents,
    )
    opening = Opening(
        context=context,
        assumed_version=config.assumed_version,
        rendering=rendering,
        stitching=Stitching(rendering, parts.memory, parts.lookup),
        raw_prompts=raw_prompts,
        sessions=parts.sessions,
        budgets=parts.budgets,
        sampling=config.sampling,
        routed_experts=config.record_routed_experts,
        grammars=GrammarBackends(upstream.grammar_backends),
        settings=settings,
        metrics=parts.metrics,
    )
    generation = Generation(config, upstream, dispatch, parts.metrics)
    pipeline = TokensPipeline(
        Intake(config, parts.admission),
        parts.retries,
        AnswerGuard(config.keepalive_s),
        model_names=served.names,
        opening=opening,
        idleness=parts.idleness,
        prompt_logprobs=config.prompt_logprobs,
        drop_builtin_tools=config.drop_builtin_tools,
        images=config.images,
        responses=Responses(responses, parts.lookup, parts.catalog, rendering),
        answers=Answers(rendering, generation, recorder),
    )
    return Assembled(
        pipeline=pipeline,
        upstream=upstream,
        departures=departures,
        rendering=rendering,
        is_there=upstream.has_workers,
        close=partial(_close, context, settings, upstream),
    )


def _relay(served: Served, parts: Parts) -> Assembled:
    """What agents send and get passes as it is. Raises `SetupError`."""
    config, certified = served.config, served.certified
    asked = ("prompt_logprobs", "sampling_masks", "record_routed_experts", "adapter_name")
    for name in (*asked, "drop_builtin_tools", "images"):
        if getattr(config, name) not in (False, None, (), "refuse"):
            raise SetupError(
                f"proxy.{name} needs capture level tokens, where the proxy asks the engine, not "
                f"{certified.level.value}: unset it, or set proxy.level"
            )
    upstream = RelayUpstream(served.upstream_url, config)
    versions = EngineVersions(parts.gate, upstream.versions, config.assumed_version)
    recorder = RelayRecorder(parts.sink, parts.budgets, parts.memory, versions, parts.metrics)
    departures = _departures(config, parts.gate, upstream.connections)
    dispatch = Dispatch(
        config,
        parts.gate,
        departures,
        parts.metrics,
        on_trouble=parts.on_trouble,
        lost_retries=LOST_RETRIES,
        intents=parts.intents,
        versions=versions if certified.level is Level.PASSTHROUGH else None,
    )
    key = config.upstream_api_key
    pipeline = RelayPipeline(
        Intake(config, parts.admission),
        parts.retries,
        AnswerGuard(config.keepalive_s),
        opening=RelayOpening(
            certified,
            config.below_level,
            config.sampling,
            sessions=parts.sessions,
            budgets=parts.budgets,
            memory=parts.memory,
            lookup=parts.lookup,
        ),
        idleness=parts.idleness,
        forwarding=Forwarding(upstream, dispatch, Answering(recorder, key), key),
        recorder=recorder,
    )
    return Assembled(
        pipeline=pipeline,
        upstream=Upstream(served.upstream_url, config),
        departures=departures,
        rendering=None,
        is_there=upstream.is_there,
        close=upstream.close,
    )


async def _close(*parts: ContextLength | EngineSettings | Upstream) -> None:
    for part in parts:
        await part.close()


def _departures(config: ProxyConfig, gate: Gate, connections: Connections) -> Departures:
    return Departures(
        gate,
        InFlightLimit(config.max_concurrent),
        connections,
        refused_limit_s=config.refused_limit_s,
        pause_s=config.retry_backoff_s,
    )


def _max_model_len(config: ProxyConfig, model_path: Path) -> int:
    length = config.max_model_len or context_length(model_path)
    if length is None:
        raise SetupError(
            f"the context length of {model_path} is unknown: its config.json has no max_position_embeddings; "
            "set proxy.max_model_len"
        )
    return length
