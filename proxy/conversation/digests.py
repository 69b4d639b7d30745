"""Messages as a hash chain, so that a request is recognised as the continuation of an earlier call.

Two histories have the same digests exactly when their prompts mean the same: roles, texts, tool calls with their
arguments as values. Differences that agents introduce by accident do not count: reasoning, the ids of tool calls, the
names of assistants and tools, key order, spacing and number format of arguments, white space around an assistant's
text, and an assistant's message with nothing in it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import xxhash

from weir.proxy.conversation.call_request import Message, Tool

Digest = bytes

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def root_digest(tools: list[Tool] | None) -> Digest:
    """The start of a chain: tools stand before every message in the prompt."""
    return xxhash.xxh3_128_digest(_encode(tools or []))


def extend(digest: Digest, message: Message) -> Digest:
    """The digest of the history with this `digest`, followed by `message`."""
    canonical = _canonical(message)
    return digest if canonical is None else xxhash.xxh3_128_digest(digest + _encode(canonical))


def under(digest: Digest, variables: Mapping[str, Any]) -> Digest:
    """The digest of a history whose prompt is written under variables of the chat template; its own inverse.

    Prompts under different variables are different, so that none continues the other; without any it stays as it is.
    """
    if not variables:
        return digest
    mask = int.from_bytes(xxhash.xxh3_128_digest(_encode(variables)))
    return (int.from_bytes(digest) ^ mask).to_bytes(len(digest))


def chain(tools: list[Tool] | None, messages: Iterable[Message]) -> list[Digest]:
    """Digests of every prefix: element i is that of the first i messages; element 0 that of the tools alone."""
    digests = [root_digest(tools)]
    for message in messages:
        digests.append(extend(digests[-1], message))
    return digests


def _canonical(message: Message) -> list[Any] | None:
    """The parts of a message that count; None where there are none: agents drop empty answers from the history."""
    content = message.get("content") or ""
    if message["role"] == "tool":
        return ["tool", content]
    if message["role"] != "assistant":
        return [message["role"], message.get("name"), content]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    content = content.strip()
    if not content and not calls:
        return None
    return ["assistant", content, [[f["name"], _arguments(f["arguments"])] for f in calls]]


def _arguments(text: str) -> Any:
    """Arguments as a value; text that is no JSON stays text."""
    try:
        return _plain(_decode(text)) if text.strip() else {}
    except (msgspec.DecodeError, RecursionError):
        return text


def _plain(value: Any) -> Any:
    """The value as JavaScript would write it too: 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
