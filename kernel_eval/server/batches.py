"""POST /eval/batch: many evaluations in one request, each answered as soon as it is known.

The answer is JSON Lines in the order of completion: `{"index", "status", "reply"}` or `{"index", "status", "error"}`.
Invariants: an item's mistake is its own answer, never the batch's; a batch has no more evaluations under way than twice
the slots, so it fills no queue; a client that leaves ends what has not been answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from weir.kernel_eval.server.evaluations import Evaluations, Refused

_encode = msgspec.json.Encoder().encode


class Batch(msgspec.Struct, frozen=True):
    """Body of POST /eval/batch; each item has the form of POST /eval."""

    items: list[msgspec.Raw]


def read_batch(body: bytes, most: int) -> list[msgspec.Raw]:
    """The items of a batch, unread. Raises `Refused`."""
    try:
        batch = msgspec.json.decode(body, type=Batch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f'not a batch: {error}; expected {{"items": [request, …]}}') from error
    if not 1 <= len(batch.items) <= most:
        raise Refused(400, f"the batch has {len(batch.items)} items, expected 1 to {most}; split it")
    return batch.items


async def answers(items: Sequence[msgspec.Raw], evaluations: Evaluations, at_once: int) -> AsyncIterator[bytes]:
    """A line for each item. Closing it ends the evaluations that are under way."""
    todo = iter(enumerate(items))
    done: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def work() -> None:
        for index, item in todo:
            done.put_nowait({"index": index} | await _answer(item, evaluations))

    workers = [asyncio.create_task(work()) for _ in range(min(at_once, len(items)))]
    try:
        for _ in items:
            yield _encode(await done.get()) + b"\n"
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _answer(item: msgspec.Raw, evaluations: Evaluations) -> dict[str, Any]:
    try:
        return {"status": 200, "reply": await evaluations.evaluate(evaluations.read(item))}
    except Refused as refusal:
        return {"status": refusal.status, "error": {"message": refusal.message, "type": kind_of(refusal.status)}}
    except Exception as error:  # of one item; the others go on
        message = f"{type(error).__name__}: {error}"
        return {"status": 500, "error": {"message": message, "type": kind_of(500)}}


def kind_of(status: int) -> str:
    """The type of an error, by HTTP's status."""
    if status == 503:
        return "unavailable"
    return "server_error" if status >= 500 else "invalid_request"
