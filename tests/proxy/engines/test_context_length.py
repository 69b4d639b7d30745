"""The context length: no more than the engines say that they take, learned without holding calls up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import openai
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support_way import Way

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.client import Upstream
from weir.proxy.engines.context_length import ContextLength

LONGEST = 4096  # the tests' model


def test_agents_see_and_get_what_the_engine_takes(open_way: Callable[..., Way]) -> None:
    way = open_way()
    way.engine.max_model_len = 100
    try:
        client = way.proxy.client()
        while client.models.list().data[0].max_model_len != 100:  # type: ignore[attr-defined]
            time.sleep(0.02)  # a slow machine may need more than one question
        way.say("Hello.")
        client.chat.completions.create(model="weir", messages=[{"role": "user", "content": "Hi"}])
        (request,) = way.engine.requests
        assert request["sampling_params"]["max_new_tokens"] == 100 - len(request["input_ids"])
        with pytest.raises(openai.BadRequestError, match="maximum context length is 100 tokens") as refused:
            client.chat.completions.create(model="weir", messages=[{"role": "user", "content": "Hi there, you. " * 40}])
        assert refused.value.code == "context_length_exceeded"
    finally:
        way.engine.max_model_len = None


@pytest.mark.parametrize(
    ("answer", "tokens"), [([512, 1024], 512), ([2 * LONGEST], LONGEST), ([], LONGEST), (None, LONGEST)]
)
def test_it_is_the_least_of_all_that_are_known(answer: Sequence[int] | None, tokens: int) -> None:
    async def ask() -> Sequence[int] | None:
        return answer

    async def run() -> None:
        context = ContextLength(LONGEST, ask)
        for _ in range(3):
            await context.learn()
            assert context.tokens == tokens
        await context.close()

    asyncio.run(run())


def test_calls_wait_for_the_first_answer_together_and_for_no_later_one() -> None:
    async def run() -> None:
        numbers: asyncio.Queue[int] = asyncio.Queue()
        num_asked = 0

        async def ask() -> Sequence[int]:
            nonlocal num_asked
            num_asked += 1
            return [await numbers.get()]

        context = ContextLength(LONGEST, ask, remembered_s=0.0)
        calls = [asyncio.create_task(context.learn()) for _ in range(5)]
        await asyncio.sleep(0)
        numbers.put_nowait(512)
        await asyncio.gather(*calls)
        assert (num_asked, context.tokens) == (1, 512)
        await context.learn()  # returns, though nothing answers
        assert context.tokens == 512
        numbers.put_nowait(256)
        for _ in range(5):  # turns of the loop, which the waiting question needs to end
            await asyncio.sleep(0)
        assert (num_asked, context.tokens) == (2, 256)
        await context.close()

    asyncio.run(run())


class Upstreams:
    """A router with two engines, all at one address; what each answers may be changed."""

    def __init__(self) -> None:
        self.statuses = {"/workers": 200, "/one/v1/models": 200, "/two/v1/models": 200, "/v1/models": 200}
        self.cards: Any = [{"max_model_len": 100}]
        self.engines: Sequence[str] = ("one", "two")

    def all_answer(self) -> bool:
        return set(self.statuses.values()) == {200} and len(self.engines) == 2

    async def answer(self, request: web.Request) -> web.Response:
        at = str(request.url.origin())
        bodies = {
            "/workers": {"workers": [{"url": f"{at}/{engine}"} for engine in self.engines]},
            "/one/v1/models": {"data": self.cards},
            "/two/v1/models": {"data": [{"max_model_len": 200}]},
            "/v1/models": {"data": [{"id": "weir"}]},  # as a router lists models, without lengths
        }
        return web.json_response(bodies[request.path], status=self.statuses[request.path])


def context_lengths_of(upstreams: Upstreams) -> list[int] | None:
    async def run() -> list[int] | None:
        app = web.Application()
        app.router.add_get("/{path:.*}", upstreams.answer)
        async with TestServer(app) as server:
            upstream = Upstream(str(server.make_url("")), ProxyConfig())
            try:
                lengths = await upstream.context_lengths()
                while lengths is None and upstreams.all_answer():  # a slow machine
                    lengths = await upstream.context_lengths()
                return lengths
            finally:
                await upstream.close()

    return asyncio.run(run())


def test_a_router_or_an_engine_that_does_not_answer_leaves_the_lengths_unknown() -> None:
    upstreams = Upstreams()
    assert context_lengths_of(upstreams) == [100, 200]
    for path in ("/workers", "/one/v1/models"):
        upstreams = Upstreams()
        upstreams.statuses[path] = 503
        assert context_lengths_of(upstreams) is None
    upstreams = Upstreams()
    upstreams.engines = ()
    assert context_lengths_of(upstreams) is None


@pytest.mark.parametrize("cards", [7, None, "weir", {"max_model_len": 100}, [7, None], [{"max_model_len": True}]])
def test_what_is_no_list_of_models_with_lengths_names_none(cards: object) -> None:
    upstreams = Upstreams()
    upstreams.cards = cards
    assert context_lengths_of(upstreams) == [200]
