"""The token ids of a prompt, as runs to which a turn is appended: calls of one conversation share those of its turns.

A hundred turns of Python ints would cost more than everything else in a call, and a copy of all earlier ids for each
turn nearly as much, so only the last turn exists as a list, and earlier runs are copied once, when many become one.
Invariant: a run's `packed` and `json` hold the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from weir.store.records.call_record import pack_ids, unpack_ids

_MERGED = 32  # as many runs become one: to join many short ones takes longer than to copy them

_encode = msgspec.json.Encoder().encode


class IdRun:
    """Ids that follow those of an earlier run."""

    __slots__ = ("before", "holders", "json", "num_bytes", "num_ids", "num_unmerged", "packed")

    def __init__(self, before: IdRun | None, packed: bytes, json: bytes | None) -> None:
        """`json` is the ids as the end of a JSON list's inside, with a comma before each; None: not known yet."""
        self.before = before
        self.packed = packed  # int32 LE, for the record
        self.json = json  # for the engine
        self.num_ids: int = len(packed) // 4 + (before.num_ids if before is not None else 0)  # with those before
        self.num_unmerged: int = before.num_unmerged + 1 if before is not None else 1  # this run and those before it
        self.num_bytes = len(packed) + len(json or b"")  # of this run alone
        self.holders = 0  # calls and later runs in a cache that hold it

    @classmethod
    def of(cls, ids: list[int], before: IdRun | None = None) -> IdRun:
        """A run of these ids."""
        return cls(before, pack_ids(ids), _json(ids))

    @classmethod
    def unpacked(cls, packed: bytes, before: IdRun | None = None) -> IdRun:
        """A run of packed ids."""
        return cls(before, packed, _json(unpack_ids(packed).tolist()))

    def runs(self) -> list[IdRun]:
        """This run and all before it, in order."""
        found = []
        run: IdRun | None = self
        while run is not None:
            found.append(run)
            run = run.before
        found.reverse()
        return found

    def merged(self) -> IdRun:
        """The same ids, the latest runs as one where they are many. What holds these runs keeps them as they are."""
        if self.num_unmerged < _MERGED:
            return self
        latest = self.runs()[-_MERGED:]
        packed, json = b"".join([run.packed for run in latest]), b"".join([_known_json(run) for run in latest])
        merged = IdRun(latest[0].before, packed, json)
        merged.num_unmerged = 0
        return merged

    @property
    def whole(self) -> bytes:
        """All ids, packed."""
        return b"".join([run.packed for run in self.runs()])


class PromptIds(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of one prompt."""

    run: IdRun
    tail: list[int]  # from where the last turn starts

    def __len__(self) -> int:
        return self.run.num_ids

    @property
    def packed(self) -> bytes:
        """All ids as int32 LE, for the record."""
        return self.run.whole

    @classmethod
    def of(cls, ids: list[int]) -> PromptIds:
        """A prompt that continues no other."""
        return cls(run=IdRun.of(ids), tail=ids)

    @classmethod
    def unpacked(cls, packed: bytes) -> PromptIds:
        """A prompt from packed ids, as one turn."""
        return cls.of(unpack_ids(packed).tolist())

    def and_turn(self, ids: list[int]) -> PromptIds:
        """These ids, followed by a further turn."""
        return PromptIds(run=IdRun.of(ids, self.run.merged()), tail=ids)

    def and_forced(self, ids: list[int]) -> PromptIds:
        """These ids, followed by more ids of the same turn."""
        return PromptIds(run=IdRun.of(ids, self.run), tail=self.tail + ids)

    def json(self, more: Sequence[int] = ()) -> Iterator[bytes | memoryview]:
        """Parts of the inside of a JSON list of these ids, followed by `more`, for the engine."""
        run = IdRun.of(list(more), self.run) if more else self.run
        is_first = True
        for part in map(_known_json, run.runs()):
            yield memoryview(part)[1:] if is_first and part else part
            is_first = is_first and not part


def _json(ids: list[int]) -> bytes:
    return b"," + _encode(ids)[1:-1] if ids else b""


def _known_json(run: IdRun) -> bytes:
    assert run.json is not None
    return run.json
