"""Earlier responses by their ids: to be continued, given again, or deleted.

They come from this process's memory, or from the store. Invariants: a response that its agent asked not to keep, or
deleted, is never given or continued again, at any worker; its call stays recorded. An agent with a session of its own
reaches the responses of that session only; those of others are to it as if they were not there.
"""

from __future__ import annotations

import asyncio

from weir.proxy.conversation.call_request import Message
from weir.proxy.conversation.caller import Caller
from weir.proxy.dialects.responses_answer import ResponsesDialect
from weir.proxy.dialects.responses_object import call_id_of
from weir.proxy.errors import NoSuchRoute
from weir.proxy.pipeline.replay import finished_of
from weir.proxy.recording.call import answer_of
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.stitching.response_cache import ResponseCache
from weir.proxy.stitching.store_lookup import ANSWERED, StoreLookup
from weir.store.catalog.catalog import Catalog
from weir.store.records.call_record import CallRecord


class Responses:
    """Recent responses, and behind them those in the store."""

    def __init__(self, memory: ResponseCache, lookup: StoreLookup, catalog: Catalog, rendering: Rendering) -> None:
        self._memory = memory
        self._lookup = lookup
        self._catalog = catalog
        self._rendering = rendering
        self._dialect = ResponsesDialect()

    async def history(self, call_id: str, caller: Caller) -> list[Message] | None:
        """The conversation up to and with a call's answer.

        None where it was deleted, a part of it was not kept, or the caller does not reach it.
        """
        if await asyncio.to_thread(self._catalog.is_response_deleted, call_id):
            return None
        seen: set[str] = set()
        while (missing := self._memory.missing(call_id)) is not None:
            if missing in seen:  # stored with `store: false`, or evicted
                return None
            seen.add(missing)
            record = await self._answered(missing)
            if record is None:
                return None
            request = self._dialect.parse(record.request, {})
            self._memory.remember(missing, record.session_id, request, answer_of(record))
        session_id = self._memory.session_of(call_id)
        return self._memory.history(call_id) if session_id is not None and caller.reaches(session_id) else None

    async def whole(self, response: str, caller: Caller) -> bytes:
        """The body of a response, as it was given. Raises `NoSuchRoute` where there is none for this caller."""
        record = await self._of_caller(response, caller)
        request = self._dialect.parse(record.request, {})
        finished = finished_of(record, request, self._rendering)
        return self._dialect.answer(request, record.call_id, record.started_us // 10**6, [finished])

    async def delete(self, response: str, caller: Caller) -> None:
        """Never give or continue a response again. Raises `NoSuchRoute` where there is none for this caller."""
        record = await self._of_caller(response, caller)
        await asyncio.to_thread(self._catalog.delete_response, record.call_id)

    async def _of_caller(self, response: str, caller: Caller) -> CallRecord:
        call_id = call_id_of(response)
        record = await self._answered(call_id)
        if (
            record is None
            or not caller.reaches(record.session_id)
            or not _is_kept(self._dialect, record)
            or await asyncio.to_thread(self._catalog.is_response_deleted, call_id)
        ):
            raise NoSuchRoute(f"Response with id {response!r:.200} not found.")
        return record

    async def _answered(self, call_id: str) -> CallRecord | None:
        record = await self._lookup.call(call_id)
        ours = record is not None and record.dialect == self._dialect.name and record.finish in ANSWERED
        return record if ours else None


def _is_kept(dialect: ResponsesDialect, record: CallRecord) -> bool:
    thread = dialect.parse(record.request, {}).thread
    return thread is not None and thread.kept
