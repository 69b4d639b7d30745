"""The context length: no more than the engines say that they take, learned without holding calls up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import openai
import pytest
from support_way import Way

from weir.proxy.engines.context_length import ContextLength

LONGEST = 4096  # the tests' model


def test_agents_see_and_get_what_the_engine_takes(open_way: Callable[..., Way]) -> None:
    way = open_way()
    way.engine.max_model_len = 100
    try:
        client = way.proxy.client()
        assert client.models.list().data[0].max_model_len == 100  # type: ignore[attr-defined]
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
