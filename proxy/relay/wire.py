"""Bytes and headers of relayed requests and answers: read leniently, changed only where flags are added or cut.

Invariants: `spliced` and `without` change nothing of a JSON text but the members that they add, replace or cut: order,
spacing, number formats and unknown fields stay as they came, and a body that cannot be parsed is relayed as it is. A
key of ours never goes upstream, and the upstream's key never comes from the agent where one is configured. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from weir.proxy.errors import CallError
from weir.proxy.sessions.access_keys import ACCESS_PREFIX, SESSION_PREFIX

_decode = msgspec.json.Decoder().decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_WHITE = " \t\n\r"
_WHITE_BYTES = _WHITE.encode()
_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
    }
)
_NOT_DOWN = _HOP | {"content-type"}
_OWN = frozenset({"host", "accept-encoding", "content-encoding", "expect", "x-weir-session", "x-weir-group"})
CREDENTIALS = ("authorization", "x-api-key", "api-key")


def read_fields(body: bytes) -> dict[str, Any]:
    """The members of a body; empty where it is not a JSON object."""
    try:
        fields = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def spliced(body: bytes, fields: Mapping[str, Any], flags: Mapping[str, bytes]) -> bytes:
    """The body with each flag set that the agent left out, or turned off (null, false).

    `flags` maps names to JSON text; `fields` are the members of the body. Empty `fields` leave the body as it is.
    """
    if not fields:
        return body
    replaced = {name: text for name, text in flags.items() if name in fields and not asks(fields.get(name))}
    if replaced:
        body = _replaced(body, replaced)
    return _appended(body, {name: text for name, text in flags.items() if name not in fields})


def _appended(body: bytes, members: Mapping[str, bytes]) -> bytes:
    """The body of an object that is not empty, with further members behind its own."""
    added = b"".join(b',"' + name.encode() + b'":' + text for name, text in members.items())
    if not added:
        return body
    end = body.rindex(b"}")
    return body[:end] + added + body[end:]


def with_values(body: bytes, fields: Mapping[str, Any], values: Mapping[str, Any]) -> bytes:
    """The body with these members set, or cut where their value is None. Empty `fields` leave it as it is."""
    if not fields or not values:
        return body
    texts = {name: _encode(value) for name, value in values.items() if value is not None}
    body = _replaced(body, {name: text for name, text in texts.items() if name in fields})
    body = _appended(body, {name: text for name, text in texts.items() if name not in fields})
    while dropped := [name for name, value in values.items() if value is None and name in _decode_members(body)]:
        members = _decode_members(body)  # a name may stand there twice
        body = without(body, [Cut(name, members[name], False) for name in dropped])
    return body


def asks(value: Any) -> bool:
    """Whether a flag's value turns it on. `logprobs` of completions is a number, and 0 turns it on."""
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
    """The session that a body names (None: none), and every identifier in the body."""
    metadata, user = fields.get("metadata"), fields.get("user")
    named = metadata if isinstance(metadata, dict) else {}
    ids = {f"metadata.{name}": value for name, value in named.items() if isinstance(value, str)}
    if isinstance(user, str):
        ids["user"] = user
    return ids.get("metadata.session_id", ids.get("user")), ids


def count(value: Any) -> int:
    """A count in a header or a body; 0 for anything that is no such number."""
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() and len(str(value)) < 10 else 0


def error_event(dialect: str, error: CallError) -> bytes:
    """The last event of a stream that broke; SDKs raise it."""
    fields = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
    match dialect:
        case "messages":
            named = {"type": "error", "error": {"type": error.kind, "message": error.message}}
            return b"event: error\ndata: " + _encode(named) + b"\n\n"
        case "responses":
            return b"event: error\ndata: " + _encode(fields | {"type": "error", "sequence_number": 0}) + b"\n\n"
        case _:
            return b"data: " + _encode({"error": fields}) + b"\n\n"


def upward(headers: Mapping[str, str], *, key: str | None, routing_key: str | None) -> dict[str, str]:
    """The headers of a request upstream: the agent's, its credential replaced where a key is configured."""
    passed = {name: value for name, value in headers.items() if name not in _HOP and name not in _OWN}
    used = next((name for name in CREDENTIALS if name in passed), CREDENTIALS[0])
    refused = [name for name in CREDENTIALS if key is not None or _is_ours(passed.get(name, ""))]
    passed = {name: value for name, value in passed.items() if name not in refused}
    if key is not None:
        passed[used] = f"Bearer {key}" if used == "authorization" else key
    if routing_key is not None:
        passed["x-smg-routing-key"] = routing_key
    return passed


def _is_ours(credential: str) -> bool:
    return any(prefix in credential for prefix in (SESSION_PREFIX, ACCESS_PREFIX))


def downward(headers: Mapping[str, str]) -> dict[str, str]:
    """The upstream's headers that the agent gets."""
    lower = ((name.lower(), value) for name, value in headers.items())
    return {name: value for name, value in lower if name not in _NOT_DOWN}


class Cut(NamedTuple):
    """One member to cut: removed, or its value made null where it would be null without our flags."""

    name: str
    value: msgspec.Raw
    to_null: bool


def without(text: bytes, cuts: Iterable[Cut]) -> bytes:
    """The text without these members; their values must have been decoded from it.

    `msgspec.Raw` members are views into the text that they were decoded from, so that their address is their position.
    """
    base = _address(text)
    placed = sorted(((_address(cut.value) - base, cut) for cut in cuts), reverse=True, key=lambda pair: pair[0])
    for start, cut in placed:  # from the end, so that earlier places stay true
        end = start + len(memoryview(cut.value))
        text = text[:start] + b"null" + text[end:] if cut.to_null else _member_removed(text, cut.name, start, end)
    return text


def _member_removed(text: bytes, name: str, start: int, end: int) -> bytes:
    """The text without the member whose value is at start:end, and without its comma."""
    key = text.rindex(b'"' + name.encode() + b'"', 0, start)
    before = len(text[:key].rstrip(_WHITE_BYTES))
    if text[before - 1 : before] == b",":
        return text[: before - 1] + text[end:]
    rest = text[end:].lstrip(_WHITE_BYTES)
    return text[:key] + (rest[1:].lstrip(_WHITE_BYTES) if rest.startswith(b",") else text[end:])


def _address(view: bytes | msgspec.Raw) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address
