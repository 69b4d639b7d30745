"""What a relayed answer of the Anthropic Messages or the Responses form said. Neither gives ids or takes our flags.

Invariant as in relay_answer.py: bytes pass as they came, unread where they cannot be read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weir.proxy.relay.chat_answer import ChatAnswer, Heard, HeardAnswer
from weir.proxy.relay.wire import read_fields
from weir.store.records.call_record import FinishReason

_MESSAGE_FINISHES = {"max_tokens": FinishReason.LENGTH, "model_context_window_exceeded": FinishReason.LENGTH}
_RESPONSE_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Items:
    """What both forms have in common: one answer, nothing to cut."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.choices = {0: self.heard}
        self.usage: dict[str, Any] | None = None
        self.response_id: str | None = None
        self.failure: str | None = None
        self.unread = False

    @property
    def is_complete(self) -> bool:
        """Whether the answer has ended as its form says it ends."""
        return self.heard.finish is not None

    def _note(self, response: Mapping[str, Any]) -> None:
        identity, usage = response.get("id"), response.get("usage")
        self.response_id = identity if isinstance(identity, str) else self.response_id
        if isinstance(usage, dict):
            self.usage = (self.usage or {}) | usage

    def _fail(self, error: Any) -> None:
        self.failure = msgspec.json.encode(error).decode()


class MessagesAnswer(_Items):
    """POST /v1/messages."""

    def __init__(self) -> None:
        super().__init__()
        self._stop: FinishReason | None = None

    def whole(self, body: bytes) -> bytes:
        """A body that was not streamed."""
        fields = read_fields(body)
        self.unread = not fields
        self._note(fields)
        for index, block in enumerate(_objects(fields.get("content"))):
            self._open(index, block)
        self._end(fields)
        self.heard.finish = self._stop
        return body

    def event(self, data: bytes) -> bytes | None:
        """The payload of one event."""
        fields = read_fields(data)
        index = fields.get("index")
        match fields.get("type"):
            case "message_start":
                self._note(_object(fields.get("message")))
            case "content_block_start" if isinstance(index, int):
                self._open(index, _object(fields.get("content_block")))
            case "content_block_delta" if isinstance(index, int):
                self._add(index, _object(fields.get("delta")))
            case "message_delta":
                self._note(fields)
                self._end(_object(fields.get("delta")))
            case "message_stop":
                self.heard.finish = self._stop or FinishReason.STOP
            case "error":
                self._fail(fields.get("error"))
        return data

    def _open(self, index: int, block: Mapping[str, Any]) -> None:
        self._add(index, block)
        if block.get("type") == "tool_use":
            given = block.get("input")
            arguments = msgspec.json.encode(given).decode() if given else ""
            self.heard.add_tool_call(
                index, {"id": block.get("id"), "function": {"name": block.get("name"), "arguments": arguments}}
            )

    def _add(self, index: int, delta: Mapping[str, Any]) -> None:
        if isinstance(text := delta.get("text"), str):
            self.heard.content.append(text)
        if isinstance(thinking := delta.get("thinking"), str):
            self.heard.reasoning.append(thinking)
        if isinstance(json := delta.get("partial_json"), str):
            self.heard.add_tool_call(index, {"function": {"arguments": json}})

    def _end(self, fields: Mapping[str, Any]) -> None:
        reason, sequence = fields.get("stop_reason"), fields.get("stop_sequence")
        if isinstance(reason, str):
            self._stop = _MESSAGE_FINISHES.get(reason, FinishReason.STOP)
        self.heard.matched = sequence if isinstance(sequence, str) else None


class ResponsesAnswer(_Items):
    """POST /v1/responses."""

    def whole(self, body: bytes) -> bytes:
        """A body that was not streamed."""
        fields = read_fields(body)
        self.unread = not fields
        self._end(fields)
        return body

    def event(self, data: bytes) -> bytes | None:
        """The payload of one event; the last one repeats the whole response."""
        fields = read_fields(data)
        kind = fields.get("type")
        if kind == "response.output_text.delta" and isinstance(delta := fields.get("delta"), str):
            self.heard.content.append(delta)
        elif kind == "error":
            self._fail(fields)
        elif kind in _RESPONSE_ENDS:
            self._end(_object(fields.get("response")))
        elif kind == "response.created":
            self._note(_object(fields.get("response")))
        return data

    def _end(self, response: Mapping[str, Any]) -> None:
        self._note(response)
        if response.get("error") is not None:
            self._fail(response["error"])
        output = list(_objects(response.get("output")))
        if output:
            self.heard.content.clear()
        for index, item in enumerate(output):
            hear_item(self.heard, index, item)
        match response.get("status"):
            case "completed":
                self.heard.finish = FinishReason.STOP
            case "incomplete":
                reason = _object(response.get("incomplete_details")).get("reason")
                self.heard.finish = FinishReason.LENGTH if reason == "max_output_tokens" else FinishReason.STOP
            case "failed" | "cancelled":
                self.heard.finish = FinishReason.ERROR


def hear_item(heard: Heard, index: int, item: Mapping[str, Any]) -> None:
    """One item that the model put out: a message, reasoning, or a call of a function."""
    if item.get("type") == "function_call":
        heard.add_tool_call(
            index, {"id": item.get("call_id"), "function": {n: item.get(n) for n in ("name", "arguments")}}
        )
        return
    parts = heard.reasoning if item.get("type") == "reasoning" else heard.content
    content = item.get("content")
    if isinstance(content, str):
        parts.append(content)
    for part in _objects(content):
        if isinstance(text := part.get("text"), str):
            parts.append(text)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else ()


def listener(dialect: str, strip: Mapping[str, bool], num_answers: int) -> HeardAnswer:
    """What hears the answers of a dialect; `strip` and `num_answers` as `ChatAnswer` has them."""
    if dialect == "messages":
        return MessagesAnswer()
    return ResponsesAnswer() if dialect == "responses" else ChatAnswer(strip, num_answers)
