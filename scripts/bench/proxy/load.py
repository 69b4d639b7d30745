"""Load for the proxy's benchmark: conversations of several turns, a number of them at once, and what they cost.

Every conversation is unlike all others, and each turn adds one message of the same length to the history that came
back. CPU is the run time of all threads of the measured processes, as the kernel accounts it; latency is the client's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a number of calls cost."""

    latencies_ms: list[float]
    seconds: float
    cpu_us: float  # of the measured processes, in all

    @property
    def cpu_us_per_call(self) -> float:
        return self.cpu_us / len(self.latencies_ms)


class Conversation:
    """A history that grows; its bodies are put together from encoded messages, because the client shares our cores."""

    def __init__(self, number: int, text: str, *, stream: bool = False) -> None:
        self._text = text
        self._number = number
        self._messages: list[bytes] = []
        options = {"model": "weir", "max_tokens": 1024} | ({"stream": True} if stream else {})
        self._head = json.dumps(options).encode()[:-1] + b', "messages": ['

    def ask(self) -> bytes:
        """The body of the next turn."""
        content = f"{self._number}.{len(self._messages)} {self._text}"
        self._messages.append(json.dumps({"role": "user", "content": content}).encode())
        return self._head + b", ".join(self._messages) + b"]}"

    def hear(self, answer: bytes) -> None:
        """The assistant's message, encoded."""
        self._messages.append(answer)


@dataclass(kw_only=True)
class Load:
    """Sends calls to one URL and watches some processes."""

    session: aiohttp.ClientSession
    url: str
    pids: Sequence[int]
    text: str
    answer: bytes = b""  # the assistant's message that every call is answered with, learned from the first
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def conversations(self, concurrency: int, num_calls: int, turns: int = 4) -> Cost:
        """Conversations of `turns` turns, `concurrency` of them going on until `num_calls` are done."""
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
        """The cost of every turn of conversations that go on in step."""
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
        """First turns, streamed."""
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
        """The same body again and again."""
        left, latencies_ms = iter(range(num_calls)), list[float]()

        async def caller() -> None:
            for _ in left:
                latencies_ms.append((await self._post(body))[1])

        return await self._measured([caller() for _ in range(concurrency)], latencies_ms)

    async def _turn(self, conversation: Conversation) -> float:
        data, latency_ms = await self._post(conversation.ask())
        if not self.answer:
            self.answer = json.dumps(json.loads(data)["choices"][0]["message"]).encode()
        conversation.hear(self.answer)
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


def cpu_us_of(pids: Sequence[int]) -> float:
    """Time that the threads of these processes have run, in microseconds."""
    files = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in files) / 1e3


def percentile(costs: Sequence[Cost], share: int) -> float:
    """Of the latencies of several runs together, in milliseconds."""
    latencies = sorted(latency for cost in costs for latency in cost.latencies_ms)
    return latencies[min(len(latencies) - 1, len(latencies) * share // 100)]
