"""An agent's body on its way upstream: read leniently, relayed byte for byte but for the flags that are added.

Invariant: `spliced` changes nothing of the JSON text besides the members it adds or whose values it replaces: order,
spacing, number formats and unknown fields stay as they came. A body that cannot be read is relayed as it is; saying
what is wrong with it is the upstream's business. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_WHITE = " \t\n\r"


def read_fields(body: bytes) -> dict[str, Any]:
    """The members of a body; none where it is not a JSON object."""
    try:
        fields = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def spliced(body: bytes, fields: Mapping[str, Any], flags: Mapping[str, bytes]) -> bytes:
    """The body with each flag set that the agent left out, or gave a value that asks for nothing (null, false).

    `flags` maps names to JSON text; `fields` are the members of the body. Empty `fields` leave the body as it is.
    """
    if not fields:
        return body
    replaced = {name: text for name, text in flags.items() if name in fields and not asks(fields.get(name))}
    if replaced:
        body = _replaced(body, replaced)
    added = b"".join(b',"' + name.encode() + b'":' + text for name, text in flags.items() if name not in fields)
    if not added:
        return body
    end = body.rindex(b"}")
    return body[:end] + added + body[end:]


def asks(value: Any) -> bool:
    """Whether a flag's value asks for something. `logprobs` of completions is a number, and 0 asks."""
    return value is not None and value is not False


def _replaced(body: bytes, values: Mapping[str, bytes]) -> bytes:
    text = body.decode()
    parts: list[str] = []
    done = 0
    for name, start, end in _members(text):
        if name in values:
            parts += [text[done:start], values[name].decode()]
            done = end
    return "".join([*parts, text[done:]]).encode()


def _members(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, start and end of the value of every member of the object that `text` is."""
    decoder = json.JSONDecoder()
    position = _skip_white(text, text.index("{") + 1)
    while text[position] != "}":
        name, position = decoder.raw_decode(text, position)
        start = _skip_white(text, _skip_white(text, position) + 1)  # over the colon
        _, end = decoder.raw_decode(text, start)
        yield name, start, end
        position = _skip_white(text, end)
        if text[position] == ",":
            position = _skip_white(text, position + 1)


def _skip_white(text: str, position: int) -> int:
    while text[position] in _WHITE:
        position += 1
    return position


def names_in(fields: dict[str, Any]) -> tuple[str | None, dict[str, str]]:
    """The body's own name of the session, and every identifier in it."""
    metadata, user = fields.get("metadata"), fields.get("user")
    named = metadata if isinstance(metadata, dict) else {}
    ids = {f"metadata.{name}": value for name, value in named.items() if isinstance(value, str)}
    if isinstance(user, str):
        ids["user"] = user
    return ids.get("metadata.session_id", ids.get("user")), ids


def count(value: Any) -> int:
    """A number as a header or a body has it; 0 for anything else."""
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() and len(str(value)) < 10 else 0
