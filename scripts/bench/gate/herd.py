"""The herd of `weir bench gate`: thousands of calls held at once, each on a connection of its own.

Heads and answers are handled by hand, because thousands of HTTP clients in one process would leave no CPU for calls.
`found_in` compares with the engines' ledgers: how often calls were generated, and in which order they came there.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weir.scripts.bench.figures import percentile
from weir.store.log.segment_format import list_segments, read_segment

OPENING = 128  # connections to the proxy that are opened at a time
TOKENS = 4  # of each answer: one step of an engine


@dataclass(slots=True)
class Held:
    """One call: whether its answer was complete, and when the first byte of it came, by the monotonic clock."""

    number: int
    answered: bool = False
    first_byte_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the ledgers say: calls that were generated more than once, and how far calls were from their place.

    Displacements are shares of the number of calls, by arrival at an engine against arrival at the proxy.
    """

    generated_twice: int
    displaced_p99: float
    displaced_max: float


class Herd:
    """Calls to one proxy."""

    def __init__(self, url: str) -> None:
        self._host, self._port = url.removeprefix("http://").split(":")
        self._opening = asyncio.Semaphore(OPENING)

    async def call(self, number: int) -> Held:
        """Make one call, streamed for even numbers."""
        held = Held(number)
        try:
            async with self._opening:
                reader, writer = await asyncio.open_connection(self._host, int(self._port))
                writer.write(self._request(number))
            try:
                await _read(reader, held)
            finally:
                writer.close()
        except OSError:
            held.answered = False
        return held

    def _request(self, number: int) -> bytes:
        messages = [{"role": "user", "content": f"Hello {number}"}]
        body = json.dumps({"model": "weir", "messages": messages, "stream": number % 2 == 0, "max_tokens": TOKENS})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()


async def _read(reader: asyncio.StreamReader, held: Held) -> None:
    """Read one answer to its end."""
    answer = b""
    while data := await reader.read(65536):
        answer += data
        if not held.first_byte_s and b"{" in answer:  # neither heads nor keepalives have one
            held.first_byte_s = time.monotonic()
    held.answered = answer.startswith(b"HTTP/1.1 200") and b'"finish_reason":"' in answer


def found_in(root: Path, ledgers: Iterable[Path]) -> Found:
    """Compare the store's records with what the engines generated."""
    rows = [json.loads(line) for path in ledgers for line in path.read_text().splitlines()]
    generated = {row["rid"]: row["arrived_us"] for row in rows if row["finish"] in ("stop", "length")}
    records = [record for segment in list_segments(root / "log") for record in read_segment(segment.path).records]
    arrivals = []
    for record in sorted(records, key=lambda record: record.started_us):
        arrivals.append([generated.pop(rid) for rid in record.engine_rids if rid in generated])
    displaced = displacements([min(times) for times in arrivals if times])
    return Found(
        generated_twice=sum(len(times) > 1 for times in arrivals) + len(generated),
        displaced_p99=percentile(displaced, 99),
        displaced_max=max(displaced, default=0.0),
    )


def displacements(times: Sequence[int]) -> list[float]:
    """How far each of these is from its place in the order of time, as shares of their number."""
    order = sorted(range(len(times)), key=times.__getitem__)
    return [abs(place - index) / len(times) for place, index in enumerate(order)]
