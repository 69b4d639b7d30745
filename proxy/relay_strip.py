"""Cutting what we asked for, and the agent did not, out of an answer's text; the rest stays byte for byte.

`msgspec.Raw` members are views into the text they were decoded from, so their address tells where they stand: no second
scan, no search that a string's content could mislead. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

_WHITE = b" \t\n\r"


class Cut(NamedTuple):
    """One member to take away: removed whole, or its value made null where it would be null without us."""

    name: str
    value: msgspec.Raw
    to_null: bool


def without(text: bytes, cuts: Iterable[Cut]) -> bytes:
    """The text without these members; their values must have been decoded from it."""
    base = _address(text)
    placed = sorted(((_address(cut.value) - base, cut) for cut in cuts), reverse=True, key=lambda pair: pair[0])
    for start, cut in placed:  # from the end, so that earlier places stay true
        end = start + len(memoryview(cut.value))
        text = text[:start] + b"null" + text[end:] if cut.to_null else _member_removed(text, cut.name, start, end)
    return text


def _member_removed(text: bytes, name: str, start: int, end: int) -> bytes:
    """Without the member whose value stands at start:end, and without the comma that it needed."""
    key = text.rindex(b'"' + name.encode() + b'"', 0, start)
    before = len(text[:key].rstrip(_WHITE))
    if text[before - 1 : before] == b",":
        return text[: before - 1] + text[end:]
    rest = text[end:].lstrip(_WHITE)
    return text[:key] + (rest[1:].lstrip(_WHITE) if rest.startswith(b",") else text[end:])


def _address(view: bytes | msgspec.Raw) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address
