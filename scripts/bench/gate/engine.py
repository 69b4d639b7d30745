"""The scripted engine of `weir bench gate`: SGLang's interface without a model, and a ledger of every sampled token.

Tokens are random; all calls in the batch get their next ones at the same step, as in continuous batching; calls beyond
its slots wait, first come, first served. Steps are due at fixed times: late ones are caught up. Loading weights takes a
fixed time. Invariants: the ledger has every token with the version that was loaded when it was sampled, whether or not
a client received it, and before one received the last: who has an answer finds it in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aiohttp import web

from weir.store.clock import now_us

STEP_S = 0.1
TOKENS_PER_STEP = 4


class Sampling:
    """One call in flight: it gets tokens at every step, until it is complete or aborted."""

    def __init__(self, body: dict[str, Any], end_id: int, num_texts: int) -> None:
        self.rid: str = body["rid"]
        params = body["sampling_params"]
        draw = random.Random(self.rid)
        wanted = int(params.get("min_new_tokens", 0)) or draw.randint(8, 64)
        self.left = min(wanted, int(params["max_new_tokens"]))
        self._finish = "stop" if wanted <= self.left else "length"
        self._end_id = end_id
        self._draw = draw
        self._num_texts = num_texts
        self.arrived_us = now_us()
        self.num_prompt = len(body["input_ids"])
        self.rows: list[tuple[float, int]] = []
        self.versions: list[list[Any]] = []  # [version, start, end]
        self.finish: str | None = None
        self.is_noted = False  # in the ledger
        self.changed = asyncio.Event()

    def step(self, version: str) -> None:
        """Sample the next tokens."""
        start = len(self.rows)
        for _ in range(min(TOKENS_PER_STEP, self.left)):
            self.left -= 1
            last = self.left == 0 and self._finish == "stop"
            token = self._end_id if last else self._draw.randrange(self._num_texts)
            self.rows.append((_float32(-self._draw.random()), token))
        if self.versions and self.versions[-1][0] == version:
            self.versions[-1][2] = len(self.rows)
        elif len(self.rows) > start:
            self.versions.append([version, start, len(self.rows)])
        if not self.left:
            self.finish = self._finish
        self.changed.set()

    def abort(self) -> None:
        """Finish with the tokens so far."""
        self.finish = "abort"
        self.changed.set()

    def chunk(self, shown: int, version: str) -> bytes:
        """The answer from token `shown` on, as JSON."""
        rows = self.rows[shown:]
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": {"type": self.finish} if self.finish else None,
            "prompt_tokens": self.num_prompt,
            "completion_tokens": len(self.rows),
            "cached_tokens": 0,
            "weight_version": version,
            "output_token_logprobs": [(logprob, token, None) for logprob, token in rows],
        }
        if self.finish:
            meta["weight_versions"] = [{"version": v, "start": s, "end": e} for v, s, e in self.versions]
        return json.dumps({"text": "", "output_ids": [token for _, token in rows], "meta_info": meta}).encode()


class Engine:
    """The calls in the batch and those that wait, the loaded version, and the ledger."""

    def __init__(self, ledger: Path, load_s: float, slots: int, end_id: int, num_texts: int) -> None:
        self.version = "0"
        self.paused = False
        self._load_s = load_s
        self._end_id, self._num_texts = end_id, num_texts
        self._slots = slots
        self._running: set[Sampling] = set()
        self._waiting: deque[Sampling] = deque()
        self._ledger = ledger.open("a", buffering=1)

    async def run_steps(self) -> None:
        """Step the batch, for ever."""
        due_s = time.monotonic()
        while True:
            due_s += STEP_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if not self.paused:
                self._step()

    def _step(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            self._running.add(self._waiting.popleft())
        for sampling in [*self._running]:
            sampling.step(self.version)
            if sampling.finish:
                self._running.discard(sampling)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """POST /generate."""
        body = await request.json()
        sampling = Sampling(body, self._end_id, self._num_texts)
        self._waiting.append(sampling)
        try:
            if not body["stream"]:
                while not sampling.finish:
                    sampling.changed.clear()
                    await sampling.changed.wait()
                self._note(sampling)
                return web.Response(body=sampling.chunk(0, self.version), content_type="application/json")
            return await self._stream(request, sampling)
        finally:
            self._running.discard(sampling)
            with contextlib.suppress(ValueError):
                self._waiting.remove(sampling)
            self._note(sampling)

    def _note(self, sampling: Sampling) -> None:
        """Write a sampling that got its last token, or lost its client, into the ledger; once."""
        if not sampling.is_noted:
            sampling.is_noted = True
            row = {"rid": sampling.rid, "rows": sampling.rows, "versions": sampling.versions}
            self._ledger.write(json.dumps(row | {"arrived_us": sampling.arrived_us, "finish": sampling.finish}) + "\n")

    async def _stream(self, request: web.Request, sampling: Sampling) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        shown = 0
        while True:
            data, ended = sampling.chunk(shown, self.version), sampling.finish is not None
            shown = len(sampling.rows)
            sampling.changed.clear()
            if ended:
                self._note(sampling)
            if shown or ended:
                await response.write(b"data: " + data + b"\n\n")
            if ended:
                await response.write(b"data: [DONE]\n\n")
                return response
            if not sampling.changed.is_set():
                await sampling.changed.wait()

    async def pause(self, _: web.Request) -> web.Response:
        """POST /pause_generation, in mode abort."""
        self.paused = True
        self._abort(self._running)
        return web.json_response({"status": "ok"})

    async def abort(self, _: web.Request) -> web.Response:
        """POST /abort_request, of all."""
        self._abort([*self._running, *self._waiting])
        self._waiting.clear()
        return web.Response()

    def _abort(self, samplings: Iterable[Sampling]) -> None:
        for sampling in [*samplings]:
            sampling.abort()
        self._running.clear()

    async def update(self, request: web.Request) -> web.Response:
        """POST /update_weights_from_disk."""
        asked = await request.json()
        await asyncio.sleep(self._load_s)
        self.version = str(asked["weight_version"])
        return web.json_response({"success": True, "message": "loaded"})

    async def resume(self, _: web.Request) -> web.Response:
        """POST /continue_generation."""
        self.paused = False
        return web.json_response({"status": "ok"})

    async def info(self, _: web.Request) -> web.Response:
        """Model and server information, for routers and publishers."""
        return web.json_response(
            {"model_path": "scripted", "tokenizer_path": "scripted", "is_generation": True, "tp_size": 1, "dp_size": 1}
            | {"served_model_name": "weir", "weight_version": self.version}
            | {"internal_states": [{"num_running": len(self._running), "num_waiting": len(self._waiting)}]}
        )


def application(engine: Engine) -> web.Application:
    """The engine as an HTTP application."""
    app = web.Application(client_max_size=2**28)
    app.router.add_post("/generate", engine.generate)
    app.router.add_post("/pause_generation", engine.pause)
    app.router.add_post("/abort_request", engine.abort)
    app.router.add_post("/update_weights_from_disk", engine.update)
    app.router.add_post("/continue_generation", engine.resume)
    for path in ("/health", "/server_info", "/get_server_info", "/model_info", "/get_model_info"):
        app.router.add_get(path, engine.info)

    async def stepping(_: web.Application) -> Any:
        task = asyncio.create_task(engine.run_steps())
        yield
        task.cancel()

    app.cleanup_ctx.append(stepping)
    return app


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


async def _make(ledger: Path, load_s: float, slots: int, end_id: int, num_texts: int) -> web.Application:
    return application(Engine(ledger, load_s, slots, end_id, num_texts))


if __name__ == "__main__":
    port, path, load, slots, end, texts = sys.argv[1:]
    web.run_app(
        _make(Path(path), float(load), int(slots), int(end), int(texts)),
        host="127.0.0.1",
        port=int(port),
        access_log=None,
        print=None,
        handler_cancellation=True,
        backlog=4096,
    )
