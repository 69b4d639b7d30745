"""POST /eval/batch: many evaluations in one request, each answered as soon as it has ended.

The answer is JSON Lines in the order of completion: `{"index", "status", "reply"}` or `{"index", "status", "error"}`.
Invariants: an invalid item fails alone, not the batch; a batch runs at most twice as many evaluations as there are
slots, so that it does not fill the queue; when the client disconnects, its evaluations are cancelled.
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


def read_batch(body: bytes, max_items: int) -> list[msgspec.Raw]:
    """The items of a batch, not yet decoded. Raises `Refused` (400) for a malformed batch."""
    try:
        batch = msgspec.json.decode(body, type=Batch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f'not a batch: {error}; expected {{"items": [request, …]}}') from error
    if not 1 <= len(batch.items) <= max_items:
        raise Refused(400, f"the batch has {len(batch.items)} items, expected 1 to {max_items}; split it")
    return batch.items


async def answers(items: Sequence[msgspec.Raw], evaluations: Evaluations, at_once: int) -> AsyncIterator[bytes]:
    """A JSON line for each item. Closing the iterator cancels the running evaluations."""
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
        return {"status": refusal.status, "error": {"message": refusal.message, "type": error_type(refusal.status)}}
    except Exception as error:  # fails this item only
        message = f"{type(error).__name__}: {error}"
        return {"status": 500, "error": {"message": message, "type": error_type(500)}}


def error_type(status: int) -> str:
    """The `type` of an error body, by HTTP status."""
    if status == 503:
        return "unavailable"
    return "server_error" if status >= 500 else "invalid_request"
