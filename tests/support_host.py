"""A scripted host of models, in the wire forms of SGLang, vLLM and OpenAI, over a real socket.

It keeps every request as it came. What it adds for a flag, and what is null without one, is as the real servers do it
(their own answers, read and run: SGLang 0.5.23, vLLM 0.32). It knows no model: every token is one character.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web
from support_servers import find_free_port

Form = Literal["sglang", "vllm", "openai"]
PROMPT_IDS = [7, 8, 9]
STRICT = {"model", "messages", "max_tokens", "stream", "logprobs", "n", "user", "metadata", "stream_options", "prompt"}


@dataclass(kw_only=True)
class Said:
    """One answer. `cut`: wait (until `go_on`), or die, after so many tokens."""

    text: str = "Hello."
    finish: str = "stop"
    version: str = "1"
    cut: Literal["wait", "die"] | None = None
    cut_after: int = 0
    status: int | None = None
    drop_logprob_at: int | None = None  # streamed without it, as SGLang does for a token without text

    @property
    def ids(self) -> list[int]:
        """One id for each character."""
        return [ord(character) for character in self.text]


def logprob_of(token_id: int) -> float:
    """Exact in float32."""
    return -(token_id % 16) / 8 - 0.125


@dataclass
class ScriptedHost:
    """Answers each call with what `script(body)` gives."""

    form: Form
    script: Callable[[dict[str, Any]], Said] = lambda _: Said()
    knows: frozenset[str] = frozenset()  # wishes that change the prompt, by their paths in the body
    server_flags: bool = True  # SGLang's --return-input-ids --return-output-ids
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    version: str | None = "1"  # what /model_info reports

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{(port := find_free_port())}"
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._waiting = threading.Semaphore(0)
        self._left = threading.Semaphore(0)
        self._held: list[asyncio.Future[str]] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(120)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(120)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    def forget(self) -> None:
        """Reset the counters."""
        for kept in (self.bodies, self.headers, self.targets):
            kept.clear()

    def wait_waiting(self) -> None:
        """Return when a call waits in the middle of its answer."""
        assert self._waiting.acquire(timeout=60)

    def wait_left(self) -> None:
        """Return when the client of a call has gone away."""
        assert self._left.acquire(timeout=60)

    def go_on(self, how: Literal["finish", "die"] = "finish") -> None:
        """Decide how the waiting calls end."""

        def release() -> None:
            for future in self._held:
                if not future.done():
                    future.set_result(how)
            self._held.clear()

        self._loop.call_soon_threadsafe(release)

    async def _start(self) -> None:
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_get("/v1/models", _models)
        app.router.add_get("/model_info", self._info)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def _info(self, _: web.Request) -> web.Response:
        info = {"model_path": "scripted"} | ({"weight_version": self.version} if self.version is not None else {})
        return web.json_response(info if self.form == "sglang" else {}, status=200 if self.form == "sglang" else 404)

    async def _read(self, request: web.Request) -> dict[str, Any]:
        raw = await request.read()
        self.bodies.append(raw)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.targets.append(request.path_qs)
        body: dict[str, Any] = json.loads(raw)
        return body

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await self._read(request)
        refused = self.form == "openai" and set(body) - STRICT
        said = self.script(body)
        if refused or said.status is not None:
            shown = (
                f"Unrecognized: {sorted(refused)}" if refused else f"scripted, {request.headers.get('authorization')}"
            )
            return web.json_response({"error": {"message": shown}}, status=said.status or 400, headers={"x-quota": "3"})
        wire = _Wire(self, request, body, said)
        try:
            return await (wire.streamed() if body.get("stream") else wire.whole())
        except (asyncio.CancelledError, ConnectionResetError):
            self._left.release()
            raise

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body = await self._read(request)
        said = self.script(body)
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        usage = {"input_tokens": 3, "output_tokens": len(said.ids)}
        if not body.get("stream"):
            content = [{"type": "text", "text": said.text}]
            return web.json_response(message | {"content": content, "stop_reason": "end_turn", "usage": usage})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        events: list[dict[str, Any]] = [{"type": "message_start", "message": message | {"content": [], "usage": usage}}]
        events.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        deltas = [{"type": "text_delta", "text": part} for part in said.text]
        events += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
        events += [
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ]
        for event in events:
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await response.write_eof()
        return response

    async def hold(self) -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._held.append(future)
        self._waiting.release()
        return await future


class _Wire:
    """One answer of the chat or completions form."""

    def __init__(self, host: ScriptedHost, request: web.Request, body: dict[str, Any], said: Said) -> None:
        self._host, self._request, self._body, self._said = host, request, body, said
        self._chat = "messages" in body
        self._index = 0
        self._base = {"id": "x-1", "created": 1, "model": body["model"]}

    async def whole(self) -> web.Response:
        said, form = self._said, self._host.form
        if said.cut is not None and await self._cut() == "die":
            return web.Response()
        answer = {"message": {"role": "assistant", "content": said.text}} if self._chat else {"text": said.text}
        choices = [
            {
                "index": i,
                **answer,
                "logprobs": self._logprobs(said.ids),
                "finish_reason": said.finish,
                **self._ids(said.ids),
            }
            for i in range(self._body.get("n") or 1)
        ]
        usage = {"prompt_tokens": 3, "completion_tokens": len(said.ids), "prompt_tokens_details": {"cached_tokens": 2}}
        fields = self._base | {"object": "chat.completion", "choices": choices, "usage": usage}
        if form == "sglang":
            span = {"version": said.version, "start": 0, "end": len(said.ids)}
            fields["metadata"] = {"weight_version": said.version, "weight_versions": [span]}
        if form == "vllm":
            fields["prompt_token_ids"] = self._prompt_ids if self._body.get("return_token_ids") else None
        if self._gives_sglext():
            fields["sglext"] = {"input_ids": self._prompt_ids, "output_ids": [said.ids] * len(choices)}
        return web.json_response(fields)

    async def streamed(self) -> web.StreamResponse:
        said = self._said
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8", "x-quota": "3"})
        await response.prepare(self._request)
        num_answers = self._body.get("n") or 1
        first: dict[str, Any] = {"prompt_token_ids": self._prompt_ids if self._body.get("return_token_ids") else None}
        for self._index in range(num_answers):  # one after the other, as a host with one place to work would
            await self._event(response, {"role": "assistant", "content": ""}, [], **(first if self._vllm else {}))
            for position, token in enumerate(said.ids):
                if said.cut is not None and position == said.cut_after and await self._cut() == "die":
                    return response
                dropped = position == said.drop_logprob_at
                await self._event(response, {"content": chr(token)}, [token], dropped=dropped)
            await self._event(response, {}, [], finish=said.finish)
        if self._gives_sglext():
            ids = {"input_ids": self._prompt_ids, "output_ids": [said.ids] * num_answers}
            await self._write(response, {"choices": [], "usage": None, "sglext": ids})
        if (self._body.get("stream_options") or {}).get("include_usage"):
            await self._write(
                response, {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(said.ids)}}
            )
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    @property
    def _prompt_ids(self) -> list[int]:
        variables = self._body.get("chat_template_kwargs") or {}
        wishes = self._body | {f"chat_template_kwargs.{name}": value for name, value in variables.items()}
        return PROMPT_IDS + [len(str(wishes[name])) for name in sorted(self._host.knows) if name in wishes]

    @property
    def _vllm(self) -> bool:
        return self._host.form == "vllm"

    async def _event(
        self,
        response: web.StreamResponse,
        delta: dict[str, Any],
        ids: list[int],
        *,
        finish: str | None = None,
        dropped: bool = False,
        **more: Any,
    ) -> None:
        logprobs = self._logprobs(ids) if ids and not dropped else None
        text = {"delta": delta} if self._chat else {"text": delta.get("content", "")}
        choice = {"index": self._index, **text, "logprobs": logprobs, "finish_reason": finish}
        if self._vllm:
            choice["token_ids"] = ids if self._body.get("return_token_ids") else None
        await self._write(response, {"choices": [choice], **more})

    async def _write(self, response: web.StreamResponse, fields: dict[str, Any]) -> None:
        await response.write(b"data: " + json.dumps(self._base | fields).encode() + b"\n\n")
        await asyncio.sleep(0)

    async def _cut(self) -> str:
        how = "die" if self._said.cut == "die" else await self._host.hold()
        if how == "die":
            assert self._request.transport is not None
            self._request.transport.close()
        return how

    def _logprobs(self, ids: list[int]) -> dict[str, Any] | None:
        if (asked := self._body.get("logprobs")) is None or asked is False:
            return None
        if not self._chat:
            return {"tokens": [chr(n) for n in ids], "token_logprobs": [logprob_of(n) for n in ids]}
        return {
            "content": [{"token": chr(n), "logprob": logprob_of(n), "bytes": None, "top_logprobs": []} for n in ids]
        }

    def _ids(self, ids: list[int]) -> dict[str, Any]:
        return {"token_ids": ids if self._body.get("return_token_ids") else None} if self._vllm else {}

    def _gives_sglext(self) -> bool:
        asked = self._body.get("return_input_ids_in_sglext") is True
        return self._host.form == "sglang" and self._chat and (asked or self._host.server_flags)


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "weir", "object": "model", "owned_by": "scripted"}]})
