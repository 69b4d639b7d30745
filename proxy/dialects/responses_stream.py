"""The events of a streamed response.

Invariant: sequence_number counts events from 0; an item is added, grows and is done before the next one is added; the
last event holds the items exactly as their events gave them, and is completed, incomplete or failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import CallRequest, Delta, Finished, TokenLogprob, ToolCall, Usage
from weir.proxy.dialects.responses_object import (
    Item,
    call_item,
    logprob_list,
    message_item,
    reasoning_item,
    response_object,
    text_part,
)
from weir.proxy.dialects.responses_tools import CUSTOM_CALL, call_fields
from weir.proxy.errors import CallError

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Growing:
    """The open item: reasoning or a message."""

    kind: str  # reasoning_text or output_text
    item_id: str
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)


class ResponsesStream:
    """The events of one streamed answer."""

    __slots__ = (
        *("_call_id", "_created_s", "_finished", "_growing", "_items"),
        *("_named", "_opened", "_request", "_sequence"),
    )

    def __init__(self, request: CallRequest, call_id: str, created_s: int) -> None:
        self._request = request
        self._call_id = call_id
        self._created_s = created_s
        self._named = call_fields(request.echo.get("tools", ()))
        self._sequence = 0
        self._opened = False
        self._items: list[Item] = []  # those that are done
        self._growing: _Growing | None = None
        self._finished: Finished | None = None

    def open(self, usage: Usage) -> bytes:
        """The response as it begins."""
        self._opened = True
        return self._lifecycle("response.created") + self._lifecycle("response.in_progress")

    def delta(self, choice: int, delta: Delta) -> bytes:
        """New reasoning, text and function calls, in this order."""
        events = b""
        if delta.reasoning:
            events += self._grow("reasoning_text", delta.reasoning, None)
        if delta.content:
            events += self._grow("output_text", delta.content, delta.logprobs)
        for call in delta.tool_calls:
            events += self._call(call)
        return events

    def finish(self, choice: int, rest: Delta, finished: Finished) -> bytes:
        """The rest of the answer; the last item is done. An answer without text and calls has an empty message."""
        self._finished = finished
        events = self.delta(choice, rest)
        if not finished.answer.content and not finished.answer.tool_calls:
            events += self._end_item("completed") + self._begin("output_text")
        return events + self._end_item("incomplete" if finished.reason == "length" else "completed")

    def close(self, usage: Usage) -> bytes:
        """The whole response, completed or cut at the limit of tokens."""
        assert self._finished is not None
        is_cut = self._finished.reason == "length"
        return self._lifecycle("response.incomplete" if is_cut else "response.completed", finished=self._finished)

    def error(self, error: CallError) -> bytes:
        """The response as failed; nothing follows it."""
        begun = b"" if self._opened else self._lifecycle("response.created")
        return begun + self._lifecycle("response.failed", error=error)

    def _lifecycle(self, kind: str, **how: Any) -> bytes:
        response = response_object(self._request, self._call_id, self._created_s, output=self._items, **how)
        return self._event(kind, response=response)

    def _grow(self, kind: str, text: str, logprobs: Sequence[TokenLogprob] | None) -> bytes:
        events = b""
        if self._growing is None or self._growing.kind != kind:
            events = self._end_item("completed") + self._begin(kind)
        assert self._growing is not None
        self._growing.texts.append(text)
        fields: dict[str, Any] = {"delta": text}
        if kind == "output_text":
            self._growing.logprobs += logprobs or ()
            fields["logprobs"] = logprob_list(logprobs)
        return events + self._part_event(f"response.{kind}.delta", **fields)

    def _begin(self, kind: str) -> bytes:
        item = (
            reasoning_item(self._call_id, len(self._items), "", status="in_progress")
            if kind == "reasoning_text"
            else message_item(self._call_id, len(self._items), None, None, status="in_progress")
        )
        self._growing = _Growing(kind, item["id"])
        added = self._event("response.output_item.added", output_index=len(self._items), item=item)
        return added + self._part_event("response.content_part.added", part=_part(kind, "", None))

    def _end_item(self, status: str) -> bytes:
        growing = self._growing
        if growing is None:
            return b""
        text, logprobs, index = "".join(growing.texts), growing.logprobs, len(self._items)
        fields: dict[str, Any] = {"text": text}
        if growing.kind == "output_text":
            fields["logprobs"] = logprob_list(logprobs)
        events = self._part_event(f"response.{growing.kind}.done", **fields)
        events += self._part_event("response.content_part.done", part=_part(growing.kind, text, logprobs))
        self._growing = None
        item = (
            reasoning_item(self._call_id, index, text, status="completed")
            if growing.kind == "reasoning_text"
            else message_item(self._call_id, index, text, logprobs, status=status)
        )
        return events + self._item_done(item)

    def _call(self, call: ToolCall) -> bytes:
        events, index = self._end_item("completed"), len(self._items)
        begun = call_item(self._call_id, index, call, "", self._named, status="in_progress")
        done = call_item(self._call_id, index, call, call.arguments, self._named, status="completed")
        events += self._event("response.output_item.added", output_index=index, item=begun)
        where = {"item_id": begun["id"], "output_index": index}
        if begun["type"] == CUSTOM_CALL:
            events += self._event("response.custom_tool_call_input.delta", **where, delta=done["input"])
            events += self._event("response.custom_tool_call_input.done", **where, input=done["input"])
            return events + self._item_done(done)
        events += self._event("response.function_call_arguments.delta", **where, delta=call.arguments)
        events += self._event(
            "response.function_call_arguments.done", **where, name=begun["name"], arguments=call.arguments
        )
        return events + self._item_done(done)

    def _item_done(self, item: Item) -> bytes:
        self._items.append(item)
        return self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _part_event(self, kind: str, **fields: Any) -> bytes:
        assert self._growing is not None
        where = {"item_id": self._growing.item_id, "output_index": len(self._items), "content_index": 0}
        return self._event(kind, **where, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = _encode({"type": kind, "sequence_number": self._sequence} | fields)
        self._sequence += 1
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _part(kind: str, text: str, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any]:
    return {"type": "reasoning_text", "text": text} if kind == "reasoning_text" else text_part(text, logprobs)
