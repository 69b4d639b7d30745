"""What engines really sampled, by request id: the truth that records are compared with.

The embedded engine writes its own ledger. A real SGLang has none, so a tap in front of it keeps what the engine itself
put on the wire, before any router or proxy saw it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from support_servers import find_free_port


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled token, as the engine tells it."""

    token: int
    logprob: float
    version: str


Ledger = dict[str, list[Sampled]]


def read_ledgers(paths: Iterable[Path]) -> Ledger:
    """The embedded engines' ledgers, joined; positions must be consecutive for every request id."""
    ledger: Ledger = defaultdict(list)
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            assert row["position"] == len(ledger[row["rid"]]), f"{path}: {row} is out of order"
            ledger[row["rid"]].append(Sampled(row["token"], row["logprob"], str(row["version"])))
    return dict(ledger)


class Tap:
    """Stands between a router and one engine, forwards every byte, and keeps the answers to /generate."""

    def __init__(self, engine_url: str) -> None:
        self.engine_url = engine_url
        self.port = find_free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ledger: Ledger = {}
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._started.wait(120)

    def stop(self) -> None:
        """Stop serving; what was kept stays readable."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._close())

    async def _start(self) -> None:
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        application = web.Application(client_max_size=2**28)
        application.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def _close(self) -> None:
        await self._client.close()
        await self._runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"content-type": request.headers.get("content-type", "application/json")}
        async with self._client.request(
            request.method, self.engine_url + request.path_qs, data=body, headers=headers
        ) as upstream:
            answer = web.StreamResponse(status=upstream.status)
            answer.content_type = upstream.content_type
            await answer.prepare(request)
            kept = bytearray()
            try:
                async for chunk in upstream.content.iter_any():
                    kept += chunk
                    await answer.write(chunk)
            except ConnectionResetError:  # a router may leave after the last token, before the end of the stream
                if upstream.content_type == "text/event-stream" and _is_finished(bytes(kept)):
                    self.heard(request.path, bytes(kept), upstream.content_type)
                raise
            if upstream.status == 200:
                self.heard(request.path, bytes(kept), upstream.content_type)
            await answer.write_eof()
            return answer

    def heard(self, path: str, body: bytes, content_type: str) -> None:
        """An answer of the engine has passed, whole."""
        if path == "/generate":
            self._keep(body, content_type)

    def _keep(self, body: bytes, content_type: str) -> None:
        final = _joined(_events(body)) if content_type == "text/event-stream" else json.loads(body)
        meta = final["meta_info"]
        spans = meta.get("weight_versions") or [{"version": meta["weight_version"], "start": 0, "end": None}]
        versions = [
            str(span["version"])
            for span in spans
            for _ in range(span["start"], len(final["output_ids"]) if span["end"] is None else span["end"])
        ]
        tokens = [
            Sampled(token, logprob, version)
            for (logprob, token, _), version in zip(meta["output_token_logprobs"], versions, strict=True)
        ]
        assert [token.token for token in tokens] == final["output_ids"]
        if tokens:
            assert meta["id"] not in self.ledger
            self.ledger[meta["id"]] = tokens


def _events(body: bytes) -> list[dict[str, Any]]:
    lines = [line[6:] for line in body.split(b"\n\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line.strip() != b"[DONE]"]


def _is_finished(body: bytes) -> bool:
    whole = body[: body.rfind(b"\n\n") + 2]
    events = _events(whole)
    return bool(events) and events[-1].get("meta_info", {}).get("finish_reason") is not None


def _joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole answer of a stream, whether each chunk has all output so far or only what is new."""
    final = chunks[-1]
    new_ids = [token for chunk in chunks for token in chunk["output_ids"]]
    if len(new_ids) == final["meta_info"]["completion_tokens"]:
        logprobs = [entry for chunk in chunks for entry in chunk["meta_info"].get("output_token_logprobs") or ()]
        final = final | {"output_ids": new_ids, "meta_info": final["meta_info"] | {"output_token_logprobs": logprobs}}
    return final
