"""A request and its answer, free of any wire form, and the interface of a dialect, which translates both.

A dialect is a pure module: it turns a body into a `CallRequest` and an `Answer` back into bytes. The pipelines know no
wire form, and a dialect knows no engine, no gate and no store. Messages are in the form that the `renderers` library
takes: role, content (text), tool_calls, tool_call_id, name, reasoning_content.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from weir.proxy.errors import CallError

Message = dict[str, Any]
Tool = dict[str, Any]
Raw = str | list[int]  # a prompt that is no conversation: text or token ids


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters; the defaults are the full distribution, which trainers can recompute."""

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, Any] = {}  # further sampling parameters, by the engine's names


class ToolUse(enum.StrEnum):
    """The agent's requirement on tool calls."""

    AUTO = "auto"  # the model decides
    NONE = "none"  # tool calls in the output stay text
    REQUIRED = "required"  # the answer opens with a tool call


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """A request's link to earlier ones by id. Its messages are instructions, then inherited ones, then its own."""

    previous: str | None  # the call whose answer it continues
    num_instructions: int = 0  # messages that no later request inherits
    num_inherited: int = 0  # messages of the earlier responses
    kept: bool = True  # whether later requests may continue its answer


class HostedTool(msgspec.Struct, frozen=True):
    """A tool that the host would have to run itself; `where` is its path in the body."""

    where: str
    type: str


class Wish(msgspec.Struct, frozen=True):
    """What an agent wishes of the model's thinking or of its words; `where` is its path in the body.

    A chat template fulfils it by one of the `variables`, (name, value), the first that it knows; none fulfil it where
    there are none. One that `names_variable` comes from somebody who knows the template.
    """

    where: str
    variables: tuple[tuple[str, Any], ...] = ()
    names_variable: bool = False


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, free of its wire form. `messages` is empty exactly where `raw_prompts` is not."""

    model: str
    messages: Sequence[Message]
    digests: list[bytes] | None = None  # of every prefix of the messages, where the dialect computed them
    tools: list[Tool] | None = None
    hosted_tools: tuple[HostedTool, ...] = ()
    images: tuple[str, ...] = ()  # paths in the body of images, for which a text stands in the messages
    tool_use: ToolUse = ToolUse.AUTO
    tool_named: str | None = None  # the one tool that must be called; with REQUIRED only
    parallel_tool_calls: bool = True
    prefill: str = ""  # how the answer begins, by the agent
    raw_prompts: tuple[Raw, ...] = ()
    num_answers: int = 1  # to each prompt
    thread: Thread | None = None  # in dialects whose requests continue each other by id
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    top_logprobs: int = 0  # how many of the likeliest tokens are wanted at each position
    sampling: Sampling = Sampling()
    format_field: str = "response_format"  # path in the body of the format that the answer must have
    wishes: tuple[Wish, ...] = ()
    template_variables: dict[str, Any] = {}  # by which the chat template fulfils wishes
    ignored_fields: tuple[str, ...] = ()  # paths in the body of wishes without effect here
    session_hint: str | None = None  # the session that the body names
    agent_ids: dict[str, str] = {}  # every identifier in the body
    echo: dict[str, Any] = {}  # fields of the body that the answer repeats

    @property
    def num_calls(self) -> int:
        """How many calls the request asks for: `num_answers` to each prompt."""
        return self.num_answers * max(1, len(self.raw_prompts))

    @property
    def parses_tools(self) -> bool:
        """Whether tool calls in the answer are the agent's tool calls; otherwise they are text."""
        return self.tools is not None and self.tool_use is not ToolUse.NONE


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call in an answer; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A finished answer."""

    content: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]

    def after(self, prefill: str) -> Answer:
        """What the model added to an answer that the agent began."""
        if not prefill:
            return self
        return Answer(content=self.content.removeprefix(prefill), reasoning=None, tool_calls=self.tool_calls)

    def message(self) -> Message:
        """The assistant message that the agent gets, and will send back as history."""
        message: Message = {"role": "assistant", "content": self.content or (None if self.tool_calls else "")}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return message


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One output token as text, with its logprob, and the likeliest tokens of its position where they were wanted."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of a finished call."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int = 0  # of the completion tokens


class Delta(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The new part of one streamed answer; a tool call comes complete, as soon as it is closed.

    A struct, not a dataclass, which would cost six times as much for every part of a stream.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: Sequence[TokenLogprob] | None = None

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.tool_calls)


NOTHING = Delta()


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A finished answer. `reason` is `stop` or `length`."""

    call_id: str
    answer: Answer
    reason: str
    usage: Usage
    logprobs: Sequence[TokenLogprob] | None
    stop_string: str | None = None  # the agent's stop string that ended it


class AnswerStream(Protocol):
    """Encodes the events of one streamed request; each method returns b"" where nothing is to be sent.

    `choice` counts the answers from 0. The order is: open, deltas, one finish for each choice, close; an error may come
    at any time and ends it.
    """

    def open(self, usage: Usage) -> bytes:
        """The opening events; `usage` counts no completion tokens yet."""
        ...

    def delta(self, choice: int, delta: Delta) -> bytes:
        """The events for a new part of one answer."""
        ...

    def finish(self, choice: int, rest: Delta, finished: Finished) -> bytes:
        """The events for the rest of an answer and its end."""
        ...

    def close(self, usage: Usage) -> bytes:
        """The events after all answers; `usage` counts all of them."""
        ...

    def error(self, error: CallError) -> bytes:
        """The event of a request that failed in the middle; nothing follows."""
        ...


class Dialect(Protocol):
    """One wire form. `call_id` is that of the first answer."""

    name: str
    keepalive: bytes  # an event that streaming clients ignore

    def parse(self, body: bytes, headers: Mapping[str, str]) -> CallRequest:
        """Parse a request; header names are lower case. Raises `BadRequest`, and nothing else."""
        ...

    def answer(self, request: CallRequest, call_id: str, created_s: int, finished: Sequence[Finished]) -> bytes:
        """The body of a request that was not streamed, with its answers in the order of their choices."""
        ...

    def stream(self, request: CallRequest, call_id: str, created_s: int) -> AnswerStream:
        """The events of a streamed request."""
        ...

    def error(self, error: CallError) -> bytes:
        """The body of an error."""
        ...


def total_usage(finished: Sequence[Finished], num_answers: int) -> Usage:
    """The usage of a request: a prompt counts once, whatever the number of its answers."""
    prompts = finished[::num_answers]
    return Usage(
        prompt_tokens=sum(one.usage.prompt_tokens for one in prompts),
        completion_tokens=sum(one.usage.completion_tokens for one in finished),
        cached_tokens=sum(one.usage.cached_tokens for one in prompts),
        reasoning_tokens=sum(one.usage.reasoning_tokens for one in finished),
    )
