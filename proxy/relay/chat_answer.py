"""Parsing of a relayed answer while it passes: messages, finish reasons, token ids and logprobs.

One parser class for each family of wire forms (`item_answers.py` has the others), with the same interface: `whole` and
`event` take a body or an event's payload and return the bytes that the agent gets (None: nothing); `is_complete` is
whether the answer ended as its wire form requires. Invariant: bytes that cannot be parsed are passed on, and `unread`
is set; nothing here makes an answer fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weir.proxy.engines.capture import ReportedSpan
from weir.proxy.relay.wire import Cut, without
from weir.store.records.call_record import FinishReason

FINISHES = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "content_filter": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORT,
}


@dataclass(slots=True, kw_only=True)
class ParsedChoice:
    """One answer (of `n`) as far as it came."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    finish: FinishReason | None = None
    matched: int | str | None = None
    prompt_ids: list[int] | None = None
    output_ids: list[int] | None = None
    logprobs: list[float] | None = None
    spans: list[ReportedSpan] | None = None

    def message(self) -> dict[str, Any]:
        """The assistant message, in the form of records."""
        calls = [self.tool_calls[index] for index in sorted(self.tool_calls)]
        text = "".join(self.content)
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if calls:
            message["tool_calls"] = calls
        return message

    def add_tool_call(self, index: int, call: Mapping[str, Any]) -> None:
        """Add a tool call in chat's form, or a piece of one."""
        function = call.get("function") or {}
        kept = self.tool_calls.setdefault(
            index, {"id": call.get("id"), "type": "function", "function": {"name": "", "arguments": ""}}
        )
        kept["id"] = kept["id"] or call.get("id")
        kept["function"]["name"] += function.get("name") or ""
        kept["function"]["arguments"] += function.get("arguments") or ""


class AnswerParser(Protocol):
    """Parses the answers to one request while they pass; `choices` has one entry for each."""

    choices: dict[int, ParsedChoice]
    usage: dict[str, Any] | None
    response_id: str | None
    failure: str | None
    unread: bool

    @property
    def is_complete(self) -> bool: ...

    def whole(self, body: bytes) -> bytes: ...

    def event(self, data: bytes) -> bytes | None: ...


class _Choice(msgspec.Struct):
    index: int = 0
    message: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    text: str | None = None
    finish_reason: str | None = None
    matched_stop: Any = None
    stop_reason: Any = None
    logprobs: Raw | UnsetType = UNSET
    token_ids: Raw | UnsetType = UNSET
    prompt_token_ids: Raw | UnsetType = UNSET
    response_token_ids: Raw | UnsetType = UNSET


class _Metadata(msgspec.Struct):
    weight_version: str | int | None = None
    weight_versions: list[ReportedSpan] | None = None


class _Body(msgspec.Struct):
    id: str | None = None
    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None
    metadata: _Metadata | None = None
    error: Any = None
    prompt_token_ids: Raw | UnsetType = UNSET
    sglext: Raw | UnsetType = UNSET


class _Entry(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Entry] | None = None
    token_logprobs: list[float] | None = None


class _SglExt(msgspec.Struct):
    input_ids: list[int] | None = None
    output_ids: list[list[int]] | None = None

    @staticmethod
    def cuts(value: Raw, to_null: bool) -> list[Cut]:
        """What to cut of an extension: its ids, or the whole of it where it holds nothing else."""
        members = _decode_members(value)
        ids = [Cut(name, member, False) for name, member in members.items() if name in _SGLEXT_IDS]
        others = [member for name, member in members.items() if name not in _SGLEXT_IDS]
        return ids if any(bytes(member) not in _NOTHING for member in others) else [Cut("sglext", value, to_null)]


_SGLEXT_IDS = ("input_ids", "output_ids")
_NOTHING = (b"null", b"[]")
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_logprobs = msgspec.json.Decoder(_Logprobs | None).decode
_decode_sglext = msgspec.json.Decoder(_SglExt | None).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_ids = msgspec.json.Decoder(list[int] | None).decode


class ChatAnswerParser:
    """Chat completions and completions, whole and streamed, with the ids that SGLang and vLLM add to them."""

    def __init__(self, strip: Mapping[str, bool], num_answers: int = 1) -> None:
        """`strip` names the members that the agent did not ask for; True where they are null without our flags."""
        self.choices: dict[int, ParsedChoice] = {}
        self.usage: dict[str, Any] | None = None
        self.response_id: str | None = None
        self.failure: str | None = None
        self.unread = False
        self._strip = strip
        self._num_answers = num_answers
        self._prompt_ids: list[int] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every answer has its finish reason."""
        begun = self.choices.values()
        return len(begun) >= self._num_answers and all(parsed.finish is not None for parsed in begun)

    def whole(self, body: bytes) -> bytes:
        """A body that was not streamed."""
        return self._take(body, streamed=False) or b""

    def event(self, data: bytes) -> bytes | None:
        """The payload of one event."""
        return data if data == b"[DONE]" else self._take(data, streamed=True)

    def _take(self, data: bytes, *, streamed: bool) -> bytes | None:
        try:
            body = _decode_body(data)
            for choice in body.choices:
                self._read_choice(choice)
            self._read_ids(body)
        except (msgspec.DecodeError, RecursionError):
            self.unread = True
            return data
        self.response_id = self.response_id or body.id
        self.usage = body.usage or self.usage
        if body.error is not None:
            self.failure = msgspec.json.encode(body.error).decode()
        cuts = self._cuts(body)
        if not cuts:
            return data
        return None if streamed and _has_nothing_else(body) else without(data, cuts)

    def _read_choice(self, choice: _Choice) -> None:
        parsed = self.choices.setdefault(choice.index, ParsedChoice())
        message = choice.delta if choice.delta is not None else choice.message
        if message is not None:
            _add_message(parsed, message)
        if choice.text:
            parsed.content.append(choice.text)
        if choice.finish_reason is not None:
            parsed.finish = FINISHES.get(choice.finish_reason, FinishReason.STOP)
            matched = choice.matched_stop if choice.matched_stop is not None else choice.stop_reason
            parsed.matched = matched if isinstance(matched, int | str) else None
        if choice.logprobs is not UNSET:
            logprobs = _decode_logprobs(choice.logprobs)
            if logprobs is not None:
                parsed.logprobs = parsed.logprobs or []
                parsed.logprobs += logprobs.token_logprobs or [entry.logprob for entry in logprobs.content or ()]
        ids = choice.token_ids if choice.token_ids is not UNSET else choice.response_token_ids
        if ids is not UNSET:
            new_ids = _decode_ids(ids)
            if new_ids is not None:
                parsed.output_ids = parsed.output_ids or []
                parsed.output_ids += new_ids
        if choice.prompt_token_ids is not UNSET:
            parsed.prompt_ids = _decode_ids(choice.prompt_token_ids) or parsed.prompt_ids

    def _read_ids(self, body: _Body) -> None:
        """Read what stands beside the choices: ids of the prompt, SGLang's extension, versions."""
        if body.prompt_token_ids is not UNSET:
            self._prompt_ids = _decode_ids(body.prompt_token_ids) or self._prompt_ids
        if body.sglext is not UNSET:
            extension = _decode_sglext(body.sglext)
            if extension is not None:
                self._prompt_ids = extension.input_ids or self._prompt_ids
                for index, ids in enumerate(extension.output_ids or ()):
                    self.choices.setdefault(index, ParsedChoice()).output_ids = ids
        if body.metadata is not None and 0 in self.choices:
            self.choices[0].spans = body.metadata.weight_versions  # SGLang reports them for the first answer only
        if self._prompt_ids is not None:
            for parsed in self.choices.values():
                parsed.prompt_ids = parsed.prompt_ids or self._prompt_ids

    def _cuts(self, body: _Body) -> list[Cut]:
        holders: Sequence[_Body | _Choice] = (body, *body.choices)
        cuts: list[Cut] = []
        for name, to_null in self._strip.items():
            for holder in holders:
                value = getattr(holder, name, UNSET)
                if isinstance(value, Raw) and bytes(value) != b"null":
                    cuts += _SglExt.cuts(value, to_null) if name == "sglext" else [Cut(name, value, to_null)]
        return cuts


def _add_message(parsed: ParsedChoice, message: Mapping[str, Any]) -> None:
    content = message.get("content")
    if isinstance(content, str) and content:
        parsed.content.append(content)
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str):
        parsed.reasoning.append(reasoning)
    for position, call in enumerate(message.get("tool_calls") or ()):
        if isinstance(call, dict):
            index = call.get("index")
            parsed.add_tool_call(index if isinstance(index, int) else position, call)


def _has_nothing_else(body: _Body) -> bool:
    """Whether only our flags caused a chunk: no choice, or a choice with neither text nor an end."""
    if body.usage is not None or body.error is not None:
        return False
    return not any(
        choice.finish_reason is not None
        or choice.text is not None
        or any(value is not None for value in (choice.delta or {}).values())
        for choice in body.choices
    )
