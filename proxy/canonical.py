"""Messages as a hash chain, so that a request is recognised as the continuation of an earlier call.

Two histories have the same digests exactly when a model would have to be told the same: roles, texts, tool calls with
their arguments as values. What agents drop or rewrite without meaning it does not count: reasoning, the ids of tool
calls, key order and spacing of arguments, white space around an assistant's text. Pure. Not here: what a digest leads
to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import xxhash

from weir.proxy.dialect import Message, Tool

Digest = bytes

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def root_digest(tools: list[Tool] | None) -> Digest:
    """The start of a chain: tools stand before every message in the prompt."""
    return xxhash.xxh3_128_digest(_encode(tools or []))


def extend(digest: Digest, message: Message) -> Digest:
    """The digest of the history that `digest` names, followed by `message`."""
    return xxhash.xxh3_128_digest(digest + _encode(_canonical(message)))


def chain(tools: list[Tool] | None, messages: Iterable[Message]) -> list[Digest]:
    """Digests of every prefix: element i names the first i messages; element 0 the tools alone."""
    digests = [root_digest(tools)]
    for message in messages:
        digests.append(extend(digests[-1], message))
    return digests


def _canonical(message: Message) -> list[Any]:
    content = message.get("content") or ""
    if message["role"] != "assistant":
        return [message["role"], message.get("name"), content]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return ["assistant", message.get("name"), content.strip(), [[f["name"], _value(f["arguments"])] for f in calls]]


def _value(arguments: str) -> Any:
    try:
        return _decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
