"""What the core knows of a call, whatever wire form the agent speaks, and what a dialect has to provide.

A dialect is a pure module: it turns a body into a `CallRequest` and an `Answer` back into bytes. The core knows no wire
form and a dialect knows no engine, no gate and no store. Messages are in the form that the `renderers` library takes:
role, content (text), tool_calls, tool_call_id, name, reasoning_content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from weir.proxy.errors import CallError

Message = dict[str, Any]
Tool = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the agent wants tokens to be drawn; the defaults are the full distribution, which trainers can recompute."""

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)  # further sampling parameters, by the engine's names


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """One request, free of its wire form."""

    model: str
    messages: list[Message]
    tools: list[Tool] | None
    parse_tools: bool  # False: what looks like a tool call is text
    stream: bool
    include_usage: bool
    logprobs: bool
    sampling: Sampling
    session_hint: str | None  # the dialect's own name of the session, where the agent gave one
    agent_ids: dict[str, str]  # every identifier in the body


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call in an answer; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A finished answer."""

    content: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]

    def message(self) -> Message:
        """The assistant message that the agent was given, and will send back as history."""
        message: Message = {"role": "assistant", "content": self.content or (None if self.tool_calls else "")}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """One output token as text, with its logprob."""

    text: str
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of a finished call."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Everything that the last part of an answer says. `reason` is `stop` or `length`."""

    answer: Answer
    reason: str
    usage: Usage
    logprobs: Sequence[TokenLogprob] | None


class AnswerStream(Protocol):
    """Turns what happens during one streamed answer into bytes; each returns b"" where nothing is to be sent."""

    def delta(self, content: str, reasoning: str, logprobs: Sequence[TokenLogprob] | None) -> bytes: ...

    def finish(self, rest: tuple[str, str], finished: Finished, logprobs: Sequence[TokenLogprob] | None) -> bytes: ...

    def error(self, error: CallError) -> bytes: ...


class Dialect(Protocol):
    """One wire form."""

    name: str
    keepalive: bytes  # what a streaming client may be sent at any time, and ignores

    def parse(self, body: bytes) -> CallRequest: ...

    def answer(self, request: CallRequest, call_id: str, created_s: int, finished: Finished) -> bytes: ...

    def stream(self, request: CallRequest, call_id: str, created_s: int) -> AnswerStream: ...

    def error(self, error: CallError) -> bytes: ...
