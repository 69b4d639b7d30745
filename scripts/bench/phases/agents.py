"""The agents of `weir bench phases`: streamed conversations; the longest silence is measured, and errors count."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self

import aiohttp

from weir.scripts.bench.gate.agents import TURNS, WORDS, content_of


class Crowd:
    """Conversations with one proxy. A context: inside it has connections."""

    def __init__(self, url: str) -> None:
        self.errors: Counter[str] = Counter()
        self.answered: list[str] = []  # call ids of complete answers
        self.silences_s: list[float] = []  # of each answer: the longest time without a new token
        self._http = aiohttp.ClientSession(
            url,
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=False,
            connector=aiohttp.TCPConnector(limit=0),
        )
        self._draw = random.Random(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self._http.close()

    async def conversation(self) -> None:
        """A few turns; the first error ends it, and is counted."""
        messages: list[dict[str, Any]] = []
        try:
            for _ in range(TURNS):
                messages.append({"role": "user", "content": " ".join(self._draw.choices(WORDS, k=8))})
                messages.append({"role": "assistant", "content": await self._answer(messages)})
        except (aiohttp.ClientError, ValueError, KeyError) as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1

    async def gate(self, control_key: str) -> str:
        """The state of the proxy's gate."""
        async with self._http.get("/weir/state", headers={"authorization": f"Bearer {control_key}"}) as response:
            return str((await response.json())["gate"])

    async def _answer(self, messages: list[dict[str, Any]]) -> str:
        body = {"model": "weir", "messages": messages, "stream": True}
        last_s, longest_s, data = time.monotonic(), 0.0, b""
        async with self._http.post("/v1/chat/completions", json=body) as response:
            if response.status != 200:
                raise ValueError(f"status {response.status}: {await response.text()}")
            async for line in response.content:
                data += line
                if line.startswith(b"data: {") and json.loads(line[6:])["choices"]:  # no keepalive, no usage
                    now_s = time.monotonic()
                    longest_s, last_s = max(longest_s, now_s - last_s), now_s
            call_id = response.headers["x-weir-call"]
        text = content_of(data, stream=True)
        self.answered.append(call_id)
        self.silences_s.append(longest_s)
        return text
