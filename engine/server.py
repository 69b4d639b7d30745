"""The engine process: loads the model, starts the loop's thread and serves HTTP until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from pathlib import Path
from typing import Any

import torch
import uvicorn
import uvloop
from starlette.applications import Starlette

from weir.engine.app import make_app
from weir.engine.config import EngineConfig
from weir.engine.control import Control
from weir.engine.decoder import Decoder
from weir.engine.errors import ModelError
from weir.engine.generate import Generate, Limits, announce_on
from weir.engine.grammars import Grammars
from weir.engine.ledger import Ledger
from weir.engine.loop import EngineLoop
from weir.engine.prefixes import usual_num_tokens
from weir.engine.texts import Texts
from weir.engine.transfer.memory import Memory
from weir.engine.transfer.updates import Updates
from weir.engine.weights import load_model, model_version

# With the default of 5 ms the HTTP thread could keep the GIL from the loop's thread for a whole step.
_SWITCH_INTERVAL_S = 0.0005


def serve(model_path: Path, config: EngineConfig) -> None:
    """Serve the model of `model_path` until SIGTERM or SIGINT. Raises ModelError when it cannot be loaded."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(config.num_threads)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ModelError("device is cuda, and torch finds no GPU; use --device cpu")
    model = load_model(model_path, dtype=getattr(torch, config.dtype), device=torch.device(config.device))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(model, model_path, config))


async def _serve(model: Any, model_path: Path, config: EngineConfig) -> None:
    engine, app = build_app(model, model_path, config)
    settings = uvicorn.Config(
        app, host=config.host, port=config.port, http="httptools", log_level="warning", timeout_graceful_shutdown=5
    )
    await _Server(settings, engine).serve()


class _Server(uvicorn.Server):
    """A server that aborts all requests when it stops, so that clients get their partial answers."""

    def __init__(self, settings: uvicorn.Config, engine: EngineLoop) -> None:
        super().__init__(settings)
        self._engine = engine

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Abort all requests, then wait until their answers are sent."""
        self._engine.ask(lambda: self._engine.abort(lambda _: True))
        await super().shutdown(sockets)


def build_app(model: Any, model_path: Path, config: EngineConfig) -> tuple[EngineLoop, Starlette]:
    """Build the engine loop and the application; to be called on the event loop that serves. Raises ModelError."""
    texts = Texts(model_path)
    context_len = _context_len(model, config)
    decoder = Decoder(model, max_rows=config.max_running, max_length=context_len)
    engine = EngineLoop(
        decoder,
        texts,
        version=first_version(model_path, config),
        max_running=config.max_running,
        prefill_tokens=config.prefill_tokens,
        prefill_ms=config.prefill_ms,
        prefix_tokens=_prefix_tokens(config, context_len, decoder),
        seed=config.seed,
        ledger=Ledger(config.ledger) if config.ledger is not None else None,
        announce=announce_on(asyncio.get_running_loop()),
    )
    eos_ids = _eos_ids(model, model_path, texts)
    grammars = Grammars(texts.serialized, model.config.vocab_size, eos_ids)
    limits = Limits(
        vocab_size=model.config.vocab_size,
        context_len=context_len,
        eos_ids=eos_ids,
        incremental=config.incremental_streaming_output,
        routes=decoder.num_chosen > 0,
    )
    updates = Updates(engine, model_path)
    control = Control(
        engine,
        updates,
        context_len=context_len,
        max_running=config.max_running,
        grammar_backend="llguidance" if grammars.available else "none",
    )
    engine.start()
    return engine, make_app(Generate(engine, texts, grammars, limits), control, updates, Memory(engine), engine.close)


def first_version(model_path: Path, config: EngineConfig) -> str:
    """The version of an engine's first weights: that of the settings, else the manifest's, else 0."""
    return config.weight_version or model_version(model_path) or "0"


def _prefix_tokens(config: EngineConfig, context_len: int, decoder: Decoder) -> int:
    usual = usual_num_tokens(context_len, decoder.cache.token_bytes)
    return usual if config.prefix_tokens is None else config.prefix_tokens


def _context_len(model: Any, config: EngineConfig) -> int:
    allowed: int = model.config.max_position_embeddings
    if config.max_model_len is not None and config.max_model_len > allowed:
        raise ModelError(f"max_model_len is {config.max_model_len}, and the model's positions end at {allowed}")
    return config.max_model_len or allowed


def _eos_ids(model: Any, folder: Path, texts: Texts) -> frozenset[int]:
    """End-of-sequence ids of the model's config, its generation_config.json and the tokenizer."""
    found = [model.config.eos_token_id, texts.eos_id]
    generation = folder / "generation_config.json"
    if generation.is_file():
        found.append(json.loads(generation.read_text()).get("eos_token_id"))
    ids: set[int] = set()
    for value in found:
        ids.update(value if isinstance(value, list) else [] if value is None else [value])
    return frozenset(ids)
