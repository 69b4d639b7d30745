"""A scripted engine: SGLang's /generate over a real socket, with given output ids.

Every token's logprob and version is known beforehand (`logprob_of`), so records can be compared with what was sent.
It can stop in the middle of an answer and wait, abort, or drop the connection. It knows no model.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web
from support_servers import find_free_port

# Turns of the event loop from the acceptance of a connection to its protocol. asyncio of Python 3.11 loses a connection
# whose server is closed in between: it stays open, unanswered, until the garbage collector comes.
_TURNS = 4

Cut = Literal["abort", "die", "wait", "reject"]


@dataclass(kw_only=True)
class Script:
    """One answer: `ids` are sent, unless `cut` happens after `cut_after` of them."""

    ids: list[int]
    version: str = "0"
    finish: str = "stop"
    matched: int | str | None = None
    cut: Cut | None = None
    cut_after: int = 0
    tokens_per_chunk: int = 1
    incremental: bool = False
    spans: list[tuple[str, int, int]] | None = None  # reported as weight_versions on the final chunk
    status: int | None = None  # answer with this HTTP status instead


def logprob_of(token_id: int, position: int) -> float:
    """The logprob that the engine reports; exact in float32. `position` counts within the piece."""
    return -(token_id % 16) / 8 - position / 1024


def prompt_logprob_of(token_id: int, position: int) -> float:
    """The logprob that the engine reports of a prompt token; exact in float32."""
    return -(token_id % 8) / 4 - position / 512


def sampling_logprob_of(token_id: int, position: int) -> float:
    """The logprob among the kept tokens that the engine reports on request; exact in float32."""
    return logprob_of(token_id, position) / 2


def likeliest_of(token_id: int, position: int, number: int) -> list[tuple[int, float]]:
    """The likeliest tokens that the engine reports: the drawn one and those before it; exact in float32."""
    return [(abs(token_id - i), logprob_of(token_id, position) - i / 4) for i in range(number)]


@dataclass
class ScriptedEngine:
    """Answers each /generate with what `script(body)` gives."""

    script: Callable[[dict[str, Any]], Script]
    port: int = field(default_factory=find_free_port)
    requests: list[dict[str, Any]] = field(default_factory=list)
    num_disconnects: int = 0
    max_model_len: int | None = None  # named in /v1/models

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.forget()
        self._held: list[asyncio.Future[str]] = []
        self._runner: web.AppRunner | None = None

    def forget(self) -> None:
        """Reset the counters, for the next test."""
        self.requests.clear()
        self._arrived = threading.Semaphore(0)
        self._waiting = threading.Semaphore(0)
        self._left = threading.Semaphore(0)

    def start(self) -> ScriptedEngine:
        if not self._thread.is_alive():
            self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(120)
        return self

    def kill(self) -> None:
        """Drop all connections and stop listening; `start` brings it back on the same port."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(120)

    def stop(self) -> None:
        if not self._loop.is_closed():
            self.kill()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(120)
            self._loop.close()

    def wait_arrived(self, number: int = 1) -> None:
        """Return when `number` more calls have arrived."""
        for _ in range(number):
            assert self._arrived.acquire(timeout=120), "no call arrived at the engine"

    def wait_waiting(self, number: int = 1) -> None:
        """Return when `number` more calls wait in the middle of their answers."""
        for _ in range(number):
            assert self._waiting.acquire(timeout=120), "no call waits at the engine"

    def wait_left(self) -> None:
        """Return when a call's client has gone away."""
        assert self._left.acquire(timeout=120), "no client left"

    def go_on(self, how: Literal["finish", "abort", "die"] = "finish") -> None:
        """Decide how the waiting calls end: with the rest of their answer, an abort, or a dropped connection."""

        def release() -> None:
            held, self._held = self._held, []
            for future in held:
                if not future.done():
                    future.set_result(how)

        self._loop.call_soon_threadsafe(release)

    async def _start(self) -> None:
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/generate", self._generate)
        app.router.add_get("/health", _ok)
        for path in ("/server_info", "/get_server_info", "/model_info", "/get_model_info"):
            app.router.add_get(path, _info)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind(("127.0.0.1", self.port))
        await web.SockSite(self._runner, self._listening).start()

    async def _models(self, _: web.Request) -> web.Response:
        card: dict[str, Any] = {"id": "weir", "object": "model"}
        if self.max_model_len is not None:
            card["max_model_len"] = self.max_model_len
        return web.json_response({"object": "list", "data": [card]})

    async def _stop(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            for future in self._held:
                future.cancel()
            self._loop.remove_reader(self._listening)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            await runner.cleanup()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.requests.append(body)
        self._arrived.release()
        script = self.script(body)
        if script.status is not None:
            return web.json_response({"error": {"message": "scripted refusal"}}, status=script.status)
        answer = _Answer(self, request, body, script)
        try:
            return await answer.run()
        except (asyncio.CancelledError, ConnectionResetError):
            self.num_disconnects += 1
            self._left.release()
            raise

    async def hold(self) -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._held.append(future)
        self._waiting.release()
        return await future


class _Answer:
    """One answer on its way out."""

    def __init__(self, engine: ScriptedEngine, request: web.Request, body: dict[str, Any], script: Script) -> None:
        self._engine = engine
        self._request = request
        self._body = body
        self._script = script
        self._response: web.StreamResponse | None = None

    async def run(self) -> web.StreamResponse:
        script = self._script
        ids, finish = script.ids, script.finish
        limit = self._body["sampling_params"]["max_new_tokens"]
        if len(ids) > limit:
            ids, finish = ids[:limit], "length"
        if self._body["stream"]:
            self._response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await self._response.prepare(self._request)
        shown = 0
        if script.cut is not None:
            shown = await self._stream(ids, 0, script.cut_after)
            how = script.cut if script.cut != "wait" else await self._engine.hold()
            if how == "die":
                assert self._request.transport is not None
                self._request.transport.close()
                return self._response or web.Response(status=500)
            if how == "abort":
                return await self._end(ids[: script.cut_after], shown, "abort")
        shown = await self._stream(ids, shown, len(ids) - 1)
        return await self._end(ids, shown, finish)

    async def _stream(self, ids: list[int], shown: int, until: int) -> int:
        while self._response is not None and shown < until:
            end = min(until, shown + self._script.tokens_per_chunk)
            await self._response.write(b"data: " + self._chunk(ids[:end], shown, None) + b"\n\n")
            shown = end
            await asyncio.sleep(0)  # where a client that left is noticed
        return shown

    async def _end(self, ids: list[int], shown: int, finish: str) -> web.StreamResponse:
        final = self._chunk(ids, shown, finish)
        if self._response is None:
            return web.Response(body=final, content_type="application/json")
        await self._response.write(b"data: " + final + b"\n\ndata: [DONE]\n\n")
        await self._response.write_eof()
        return self._response

    def _chunk(self, ids: list[int], shown: int, finish: str | None) -> bytes:
        first = shown if self._script.incremental else 0
        meta: dict[str, Any] = {
            "id": self._body["rid"],
            "finish_reason": {"type": finish, "matched": self._script.matched} if finish else None,
            "prompt_tokens": len(self._body["input_ids"]),
            "completion_tokens": len(ids),
            "cached_tokens": 3,
            "weight_version": self._script.version,
            "output_token_logprobs": [[logprob_of(n, first + i), n, None] for i, n in enumerate(ids[first:])],
        }
        if (start := self._body["logprob_start_len"]) >= 0:
            prompt = list(enumerate(self._body["input_ids"]))[start:]
            entries = [[prompt_logprob_of(n, place), n, None] for place, n in prompt]
            meta["input_token_logprobs"] = [[None, *entries[0][1:]], *entries[1:]]  # as SGLang: the first has none
        if self._body.get("return_sampling_mask"):
            told = [sampling_logprob_of(n, first + i) for i, n in enumerate(ids[first:])]
            meta["output_token_sampling_logprobs"] = told
        if k := self._body.get("top_logprobs_num"):
            places = range(first, len(ids))
            meta["output_top_logprobs"] = [[[lp, n, None] for n, lp in likeliest_of(ids[i], i, k)] for i in places]
        if finish and self._script.spans is not None:
            meta["weight_versions"] = [{"version": v, "start": s, "end": e} for v, s, e in self._script.spans]
        return json.dumps({"text": "", "output_ids": ids[first:], "meta_info": meta}).encode()


async def _ok(_: web.Request) -> web.Response:
    return web.Response()


async def _info(_: web.Request) -> web.Response:
    return web.json_response(
        {"model_path": "scripted", "tokenizer_path": "scripted", "is_generation": True, "served_model_name": "weir"}
        | {"tp_size": 1, "dp_size": 1, "dtype": "bfloat16", "kv_cache_dtype": "auto", "quantization": None}
    )
