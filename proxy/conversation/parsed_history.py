"""Histories that were parsed before, so that a later turn of a conversation parses and digests its new messages only.

Agents send the whole history with every turn, and nearly always the same bytes again. Invariants: a beginning counts as
known only if its bytes are the same, up to the end of a message; what is kept of it is what parsing it gave. Its
messages themselves are not kept: the few callers that need them have them parsed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import xxhash
from cachetools import LRUCache

from weir.proxy.conversation.call_request import Message
from weir.proxy.conversation.digests import Digest

_SHORTEST = 1024  # bytes; parsing a shorter history is faster than finding it
_LIMIT = 2048  # heads by which beginnings are found
_ALIKE = 16  # beginnings with the same bytes up to the same power of two: turns of a conversation, or of a whole group
_END = 32  # bytes at the end of a beginning, which are compared before it is hashed


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The first messages of some conversation, as far as they are kept. `digests` are those of a chain."""

    num_bytes: int  # of their JSON, from the opening bracket to the end of the last message
    name: bytes  # digest of those bytes
    end: bytes  # the last of them
    num_items: int  # of the array
    num_messages: int
    num_characters: int
    digests: list[Digest]
    images: tuple[str, ...] = ()  # paths in the body


class Beginnings:
    """Recently parsed beginnings of the conversations of one dialect."""

    def __init__(self) -> None:
        self._by_head: LRUCache[bytes, list[Beginning]] = LRUCache(_LIMIT)

    def find(self, raw: bytes, root: Digest) -> Beginning | None:
        """The longest known beginning of a JSON array of messages, behind the same tools."""
        view = memoryview(raw)
        for size in _powers_below(len(raw)):
            for one in reversed(self._by_head.get(_name(view[:size]), ())):
                length = one.num_bytes
                same_end = length < len(raw) and view[length - len(one.end) : length] == one.end
                same = same_end and one.digests[0] == root and _name(view[:length]) == one.name
                if same and raw[length:].lstrip(b" \t\r\n")[:1] == b",":
                    return one
        return None

    def remember(
        self, raw: bytes, digests: list[Digest], *, num_items: int, num_characters: int, images: tuple[str, ...] = ()
    ) -> None:
        """Keep what parsing gave of a JSON array from its opening bracket to the end of an item."""
        inside = memoryview(raw)
        size = next(_powers_below(len(raw)), None)
        if size is None:
            return
        head = _name(inside[:size])
        alike = self._by_head.setdefault(head, [])
        beginning = Beginning(
            num_bytes=len(raw),
            name=_name(inside),
            end=bytes(inside[-_END:]),
            num_items=num_items,
            num_messages=len(digests) - 1,
            num_characters=num_characters,
            digests=digests,
            images=images,
        )
        others = [one for one in alike if (one.name, one.digests[0]) != (beginning.name, digests[0])]
        alike[:] = [*others[1 - _ALIKE :], beginning]


class History(Sequence[Message]):
    """The messages of a request whose beginning is known; those of the beginning are parsed on demand.

    Those in `front` stand before it.
    """

    __slots__ = ("_begun", "_front", "_new", "_old", "_read")

    def __init__(
        self, front: list[Message], begun: Beginning, new: list[Message], read: Callable[[], list[Message]]
    ) -> None:
        self._front = front
        self._begun = begun
        self._new = new
        self._read = read
        self._old: list[Message] | None = None

    @property
    def num_characters(self) -> int:
        """The number of characters in all contents."""
        return num_characters(self._front) + self._begun.num_characters + num_characters(self._new)

    def __len__(self) -> int:
        return len(self._front) + self._begun.num_messages + len(self._new)

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> list[Message]: ...
    def __getitem__(self, at: int | slice) -> Message | list[Message]:
        numbers = range(len(self))[at]
        start = len(self._front) + self._begun.num_messages
        if isinstance(numbers, int):
            return self._new[numbers - start] if numbers >= start else self._all()[numbers]
        if not numbers or min(numbers[0], numbers[-1]) >= start:
            return [self._new[number - start] for number in numbers]
        return self._all()[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    def _all(self) -> list[Message]:
        if self._old is None:
            self._old = self._read()
        return [*self._front, *self._old, *self._new]


def num_characters(messages: Sequence[Message]) -> int:
    """The number of characters in all contents."""
    if isinstance(messages, History):
        return messages.num_characters
    return sum(len(message.get("content") or "") for message in messages)


def _powers_below(num_bytes: int) -> Iterator[int]:
    """Powers of two up to a length, the greatest first; none below the shortest history that is kept."""
    size = 1 << num_bytes.bit_length() >> 1
    while size >= _SHORTEST:
        yield size
        size >>= 1


def _name(data: memoryview) -> bytes:
    return xxhash.xxh3_128_digest(data)
