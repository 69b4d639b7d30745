"""Parsing of relayed answers in the Anthropic Messages and the Responses form. Neither gives ids or takes our flags.

Invariant: the bytes pass as they came, whether they can be parsed or not. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weir.proxy.dialects.custom_tools import arguments_of
from weir.proxy.relay.chat_answer import AnswerParser, ChatAnswerParser, ParsedChoice
from weir.proxy.relay.wire import read_fields
from weir.store.records.call_record import FinishReason

_MESSAGE_FINISHES = {"max_tokens": FinishReason.LENGTH, "model_context_window_exceeded": FinishReason.LENGTH}
_RESPONSE_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Items:
    """The base of both parsers: one answer, and nothing to cut."""

    def __init__(self) -> None:
        self.parsed = ParsedChoice()
        self.choices = {0: self.parsed}
        self.usage: dict[str, Any] | None = None
        self.response_id: str | None = None
        self.failure: str | None = None
        self.unread = False

    @property
    def is_complete(self) -> bool:
        """Whether the answer ended as its wire form requires."""
        return self.parsed.finish is not None

    def _note(self, response: Mapping[str, Any]) -> None:
        identity, usage = response.get("id"), response.get("usage")
        self.response_id = identity if isinstance(identity, str) else self.response_id
        if isinstance(usage, dict):
            self.usage = (self.usage or {}) | usage

    def _fail(self, error: Any) -> None:
        self.failure = msgspec.json.encode(error).decode()


class MessagesAnswerParser(_Items):
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
        self.parsed.finish = self._stop
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
                self.parsed.finish = self._stop or FinishReason.STOP
            case "error":
                self._fail(fields.get("error"))
        return data

    def _open(self, index: int, block: Mapping[str, Any]) -> None:
        self._add(index, block)
        if block.get("type") == "tool_use":
            given = block.get("input")
            arguments = msgspec.json.encode(given).decode() if given else ""
            self.parsed.add_tool_call(
                index, {"id": block.get("id"), "function": {"name": block.get("name"), "arguments": arguments}}
            )

    def _add(self, index: int, delta: Mapping[str, Any]) -> None:
        if isinstance(text := delta.get("text"), str):
            self.parsed.content.append(text)
        if isinstance(thinking := delta.get("thinking"), str):
            self.parsed.reasoning.append(thinking)
        if isinstance(json := delta.get("partial_json"), str):
            self.parsed.add_tool_call(index, {"function": {"arguments": json}})

    def _end(self, fields: Mapping[str, Any]) -> None:
        reason, sequence = fields.get("stop_reason"), fields.get("stop_sequence")
        if isinstance(reason, str):
            self._stop = _MESSAGE_FINISHES.get(reason, FinishReason.STOP)
        self.parsed.matched = sequence if isinstance(sequence, str) else None


class ResponsesAnswerParser(_Items):
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
            self.parsed.content.append(delta)
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
            self.parsed.content.clear()
        for index, item in enumerate(output):
            add_item(self.parsed, index, item)
        match response.get("status"):
            case "completed":
                self.parsed.finish = FinishReason.STOP
            case "incomplete":
                reason = _object(response.get("incomplete_details")).get("reason")
                self.parsed.finish = FinishReason.LENGTH if reason == "max_output_tokens" else FinishReason.STOP
            case "failed" | "cancelled":
                self.parsed.finish = FinishReason.ERROR


def add_item(parsed: ParsedChoice, index: int, item: Mapping[str, Any]) -> None:
    """Add one output item of a response: a message, reasoning, or a call of a function or custom tool."""
    if item.get("type") in ("function_call", "custom_tool_call"):
        said = item.get("input")  # of a custom tool: in records it is the one argument of a function
        arguments = arguments_of(said) if isinstance(said, str) else item.get("arguments")
        function = {"name": item.get("name"), "arguments": arguments}
        parsed.add_tool_call(index, {"id": item.get("call_id"), "function": function})
        return
    parts = parsed.reasoning if item.get("type") == "reasoning" else parsed.content
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


def answer_parser(dialect: str, strip: Mapping[str, bool], num_answers: int) -> AnswerParser:
    """The parser for the answers of a dialect; `strip` and `num_answers` are those of `ChatAnswerParser`."""
    if dialect == "messages":
        return MessagesAnswerParser()
    return ResponsesAnswerParser() if dialect == "responses" else ChatAnswerParser(strip, num_answers)
