"""Stubs of the proxy's and the judge's HTTP, on real sockets, that remember what they were sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from weir.agents.config import AgentsConfig
from weir.agents.control import ControlClient

CONTROL_KEY = "control-key-for-tests"


class StubProxy:
    """Registers, rewards and finishes sessions, and answers chat completions with `answer_to(messages)`.

    `refuse_next` holds HTTP statuses for the next control requests; 0 drops the connection without an answer.
    """

    def __init__(self) -> None:
        self.url = ""
        self.sessions: dict[str, dict[str, Any]] = {}
        self.finished: dict[str, dict[str, Any]] = {}
        self.num_finished: Counter[str] = Counter()
        self.rewards: dict[str, dict[str, float]] = {}
        self.calls: list[dict[str, Any]] = []
        self.refuse_next: list[int] = []
        self.held: asyncio.Event | None = None  # calls wait for it
        self.answer_to: Callable[[list[dict[str, Any]]], str] = lambda messages: "answer"

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/weir/sessions", self._register)
        app.router.add_post("/weir/sessions/{session}/finish", self._finish)
        app.router.add_post("/weir/rewards/batch", self._reward)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    async def _register(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        body = await request.json()
        self.sessions[body["session"]] = body
        return web.json_response(
            {
                "session": body["session"],
                "group": body["group"],
                "base_url": f"{self.url}/v1",
                "api_key": f"key-{body['session']}",
            }
        )

    async def _finish(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        session = request.match_info["session"]
        self.num_finished[session] += 1
        self.finished[session] = await request.json()
        return web.json_response({})

    async def _reward(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        for row in (await request.json())["rewards"]:
            assert row["session"] not in self.finished, "a reward comes before its session's end"
            self.rewards.setdefault(row["session"], {})[row["name"]] = row["value"]
        return web.json_response({})

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.calls.append({"key": request.headers["Authorization"].removeprefix("Bearer "), **body})
        if self.held is not None:
            await self.held.wait()
        message = {"role": "assistant", "content": self.answer_to(body["messages"])}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response(
            {"id": "call_1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        )

    def _refusal(self, request: web.Request) -> web.Response | None:
        assert request.headers["Authorization"] == f"Bearer {CONTROL_KEY}"
        if not self.refuse_next:
            return None
        status = self.refuse_next.pop(0)
        if status == 0:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"error": {"message": "refused"}}, status=status or 500)


class StubJudge:
    """Answers POST /eval: correct when the candidate contains "right", else a runtime error."""

    def __init__(self) -> None:
        self.candidates: list[str] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/eval", self._eval)
        return app

    async def _eval(self, request: web.Request) -> web.Response:
        candidate = (await request.json())["custom_model_src"]
        self.candidates.append(candidate)
        right = "right" in candidate
        return web.json_response(
            {
                "compiled": True,
                "correct": right,
                "fault": None if right else "runtime_error",
                "fault_message": None if right else "NameError: name 'exp' is not defined",
                "raw_reward": 1.0 if right else 0.1,
                "sandbox": "stub",
                "mode": "interpreter",
                "trials": 2,
                "seconds": 0.01,
                "details": {} if right else {"traceback": "line one\nline two"},
            }
        )


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    """Serve `app` on a free port; yields its URL."""
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@dataclass(frozen=True)
class Stubs:
    """A proxy and a judge that listen, and a configuration that names them."""

    proxy: StubProxy
    judge: StubJudge
    config: AgentsConfig

    def control(self) -> ControlClient:
        return ControlClient(self.proxy.url, CONTROL_KEY, self.config)

    def with_config(self, **changes: Any) -> Stubs:
        return Stubs(self.proxy, self.judge, self.config.model_copy(update=changes))


@pytest.fixture
def stubs() -> Callable[..., AbstractAsyncContextManager[Stubs]]:
    """`async with stubs(samples=2) as s`: both stubs are up; keywords go into the configuration."""

    @asynccontextmanager
    async def start(**options: Any) -> AsyncIterator[Stubs]:
        proxy, judge = StubProxy(), StubJudge()
        async with serving(proxy.app()) as proxy_url, serving(judge.app()) as judge_url:
            proxy.url = proxy_url
            config = AgentsConfig(kernel_eval_url=judge_url, retry_wait_s=0.0, **options)
            yield Stubs(proxy, judge, config)

    return start
