"""The agents of `weir bench gate`: conversations over real sockets, where anything but a complete answer is an error.

Bodies are written by hand: hundreds of SDK clients in one process would leave no CPU for calls in flight. Invariant:
nothing is retried; every error that an agent sees is counted.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from types import TracebackType
from typing import Any, Self

import aiohttp

TURNS = 4
WORDS = ("add", "load", "store", "mask", "kernel", "block", "program", "pointer", "row", "sum", "max", "softmax")


class Crowd:
    """Agents that hold conversations until `stop` is set."""

    def __init__(self, url: str, *, most_tokens: int | None = None) -> None:
        """`most_tokens`: of an answer; None: the engine's own end."""
        self.stop = False
        self.errors: Counter[str] = Counter()
        self.answered: list[str] = []  # call ids of complete answers
        self._url = url
        self._limit = {} if most_tokens is None else {"max_tokens": most_tokens}

    async def agent(self, number: int) -> None:
        """Run one agent: conversation after conversation on a connection of its own."""
        draw = random.Random(number)
        limits = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(self._url, timeout=limits, trust_env=False) as http:
            while not self.stop:
                try:
                    await self._conversation(http, draw)
                except (aiohttp.ClientError, ValueError, KeyError) as error:
                    self.errors[f"{type(error).__name__}: {error}"[:200]] += 1

    async def _conversation(self, http: aiohttp.ClientSession, draw: random.Random) -> None:
        messages: list[dict[str, Any]] = []
        for _ in range(TURNS):
            messages.append({"role": "user", "content": " ".join(draw.choices(WORDS, k=8))})
            body = {"model": "weir", "messages": messages, "stream": draw.random() < 0.5} | self._limit
            async with http.post("/v1/chat/completions", json=body) as response:
                if response.status != 200:
                    raise ValueError(f"status {response.status}: {await response.text()}")
                data = await response.read()
                call_id = response.headers["x-weir-call"]
            messages.append({"role": "assistant", "content": content_of(data, stream=bool(body["stream"]))})
            self.answered.append(call_id)


class Control:
    """A client of the control routes that the benchmark uses."""

    def __init__(self, url: str, key: str) -> None:
        self._http = aiohttp.ClientSession(url, headers={"authorization": f"Bearer {key}"}, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self._http.close()

    async def pause(self) -> None:
        """Close the gate."""
        async with self._http.post("/weir/pause", json={}) as response:
            response.raise_for_status()

    async def resume(self) -> None:
        """Open the gate."""
        async with self._http.post("/weir/resume", json={}) as response:
            response.raise_for_status()

    async def wait_held(self, number: int) -> None:
        """Return once `number` calls are held."""
        while True:
            async with self._http.get("/weir/state") as response:
                if (await response.json())["held"] >= number:
                    return
            await asyncio.sleep(0.2)


def content_of(data: bytes, *, stream: bool) -> str:
    """The text of a complete answer. Raises ValueError for an incomplete one, or an error."""
    if not stream:
        return str(json.loads(data)["choices"][0]["message"]["content"] or "")
    events = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        raise ValueError(f"the stream ended without [DONE]: {data[-200:]!r}")
    chunks = [json.loads(event) for event in events[:-1]]
    if any("error" in chunk for chunk in chunks) or not chunks[-1]["choices"][0]["finish_reason"]:
        raise ValueError(f"the stream ended with {chunks[-1]}")
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
