"""Conversations that requests continue by a response's id, from this process's memory or from the store."""

from __future__ import annotations

from weir.proxy.conversation.call_request import Message
from weir.proxy.dialects.responses_answer import ResponsesDialect
from weir.proxy.recording.call import answer_of
from weir.proxy.stitching.response_cache import ResponseCache
from weir.proxy.stitching.store_lookup import ANSWERED, StoreLookup


class Responses:
    """Recent responses, and behind them those in the store."""

    def __init__(self, memory: ResponseCache, lookup: StoreLookup) -> None:
        self._memory = memory
        self._lookup = lookup
        self._dialect = ResponsesDialect()

    async def history(self, call_id: str) -> list[Message] | None:
        """The conversation up to and with a call's answer; None where a part of it was not kept."""
        seen: set[str] = set()
        while (missing := self._memory.missing(call_id)) is not None:
            if missing in seen:  # stored with `store: false`, or evicted
                return None
            seen.add(missing)
            record = await self._lookup.call(missing)
            if record is None or record.dialect != self._dialect.name or record.finish not in ANSWERED:
                return None
            self._memory.remember(missing, self._dialect.parse(record.request, {}), answer_of(record))
        return self._memory.history(call_id)
