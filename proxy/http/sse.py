"""Splitting of server-sent events at blank lines, with their exact bytes kept.

Invariant: the events and the rest are together the bytes that were fed. Pure.
"""

from __future__ import annotations

import re

_END = re.compile(rb"\r?\n\r?\n")


class EventSplitter:
    """Splits fed bytes into complete events, each with the blank line that ends it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completed."""
        data = self._rest + data
        events: list[bytes] = []
        done = 0
        for end in _END.finditer(data):
            events.append(data[done : end.end()])
            done = end.end()
        self._rest = data[done:]
        return events

    def rest(self) -> bytes:
        """The bytes after the last complete event."""
        rest, self._rest = self._rest, b""
        return rest


def data_of(event: bytes) -> bytes:
    """The payload of an event; empty for comments. Several data lines are joined by newlines, as in the standard."""
    start = event.find(b"data:")
    if start > 0 and event[start - 1 : start] != b"\n":
        start = event.find(b"\ndata:") + 1
    if start < 0 or (start == 0 and not event.startswith(b"data:")):
        return b""
    lines = [line[5:].strip() for line in event[start:].splitlines() if line.startswith(b"data:")]
    return lines[0] if len(lines) == 1 else b"\n".join(lines)


def with_data(event: bytes, data: bytes, changed: bytes) -> bytes:
    """The event with its payload `data` replaced by `changed`."""
    start = event.index(data)
    return event[:start] + changed + event[start + len(data) :]
