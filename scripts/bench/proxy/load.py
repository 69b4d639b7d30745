"""The load of the proxy's benchmark: concurrent conversations of several turns, with their latency and CPU time.

Every conversation has its own texts; each turn adds one message of the same length to the history that came back. CPU
is the run time of all threads of the measured processes; latency is measured at the client.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp

from weir.scripts.bench.figures import percentile
from weir.scripts.bench.processes import cpu_us_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Latencies and CPU time of a number of calls."""

    latencies_ms: list[float]
    seconds: float
    cpu_us: float  # of all measured processes together

    @property
    def cpu_us_per_call(self) -> float:
        return self.cpu_us / len(self.latencies_ms)


class Conversation:
    """A growing history. Bodies are joined from encoded messages, because the client shares the measured cores."""

    def __init__(self, number: int, text: str, *, stream: bool = False) -> None:
        self._text = text
        self._number = number
        self._messages: list[bytes] = []
        options = {"model": "weir", "max_tokens": 1024} | ({"stream": True} if stream else {})
        self._head = json.dumps(options).encode()[:-1] + b', "messages": ['

    def ask(self) -> bytes:
        """Append the next user message; returns the request's body."""
        content = f"{self._number}.{len(self._messages)} {self._text}"
        self._messages.append(json.dumps({"role": "user", "content": content}).encode())
        return self._head + b", ".join(self._messages) + b"]}"

    def add_answer(self, answer: bytes) -> None:
        """Append the assistant's message, encoded as JSON."""
        self._messages.append(answer)


@dataclass(kw_only=True)
class Load:
    """Sends calls to one URL and counts the CPU time of some processes."""

    session: aiohttp.ClientSession
    url: str
    pids: Sequence[int]
    text: str
    answer: bytes = b""  # the assistant's message of every answer, taken from the first
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def conversations(self, concurrency: int, num_calls: int, turns: int = 4) -> Cost:
        """Run conversations of `turns` turns, `concurrency` at a time, until `num_calls` calls are done."""
        left = itertools.count(num_calls, -1)
        latencies_ms: list[float] = []

        async def caller() -> None:
            while True:
                conversation = Conversation(next(self.numbers), self.text)
                for _ in range(turns):
                    if next(left) <= 0:
                        return
                    latencies_ms.append(await self._turn(conversation))

        return await self._measured([caller() for _ in range(concurrency)], latencies_ms)

    async def turns(self, num_conversations: int, num_turns: int, concurrency: int) -> list[Cost]:
        """Run conversations in lockstep; returns the cost of each turn, summed over conversations."""
        conversations = [Conversation(next(self.numbers), self.text) for _ in range(num_conversations)]
        costs = []
        for _ in range(num_turns):
            todo, latencies_ms = iter(conversations), list[float]()

            async def caller(todo: Iterator[Conversation] = todo, latencies_ms: list[float] = latencies_ms) -> None:
                for conversation in todo:
                    latencies_ms.append(await self._turn(conversation))

            costs.append(await self._measured([caller() for _ in range(concurrency)], latencies_ms))
        return costs

    async def streams(self, concurrency: int, num_calls: int) -> Cost:
        """Run conversations of one streamed turn."""
        left, latencies_ms = iter(range(num_calls)), list[float]()

        async def caller() -> None:
            for _ in left:
                body = Conversation(next(self.numbers), self.text, stream=True).ask()
                started = time.perf_counter()
                async with self.session.post(self.url, data=body, headers=self.headers) as response:
                    data = await response.read()
                assert response.status == 200 and data.endswith(b"data: [DONE]\n\n"), data[-300:]
                latencies_ms.append((time.perf_counter() - started) * 1e3)

        return await self._measured([caller() for _ in range(concurrency)], latencies_ms)

    async def posts(self, body: bytes, concurrency: int, num_calls: int) -> Cost:
        """Post the same body `num_calls` times."""
        left, latencies_ms = iter(range(num_calls)), list[float]()

        async def caller() -> None:
            for _ in left:
                latencies_ms.append((await self._post(body))[1])

        return await self._measured([caller() for _ in range(concurrency)], latencies_ms)

    async def _turn(self, conversation: Conversation) -> float:
        data, latency_ms = await self._post(conversation.ask())
        if not self.answer:
            self.answer = json.dumps(json.loads(data)["choices"][0]["message"]).encode()
        conversation.add_answer(self.answer)
        return latency_ms

    async def _post(self, body: bytes) -> tuple[bytes, float]:
        started = time.perf_counter()
        async with self.session.post(self.url, data=body, headers=self.headers) as response:
            data = await response.read()
        assert response.status == 200, data[:300]
        return data, (time.perf_counter() - started) * 1e3

    async def _measured(self, callers: list[object], latencies_ms: list[float]) -> Cost:
        cpu_us, started = cpu_us_of(self.pids), time.perf_counter()
        await asyncio.gather(*callers)  # type: ignore[call-overload]
        seconds = time.perf_counter() - started
        return Cost(latencies_ms=latencies_ms, seconds=seconds, cpu_us=cpu_us_of(self.pids) - cpu_us)


def latency_ms(costs: Sequence[Cost], share: int) -> float:
    """The percentile of the latencies of several runs together, in milliseconds."""
    return percentile([latency for cost in costs for latency in cost.latencies_ms], share)
