"""Intents: the calls of a writer that are upstream, in a file of slots beside its segments.

A call takes a slot before it goes upstream and gives it back once its record is in the log, so that a slot in use whose
process has ended marks a call that was lost. The file is mapped into memory: an intent costs two copies and no system
call, and is in the page cache at once, where kill -9 does not reach it. After a power cut it may be missing, also with
`durability = "fsync"`, because waiting for the disk before each call would cost more than the call.

A slot is a state (one byte), a length (u16, little-endian) and a msgpack list of the call's id, session, group and
start. Invariants: the state is written last, and cleared first, so that a process that is killed in between leaves no
half of an intent; a slot is used by one call at a time.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from weir.store.disk import Disk

FILE = "intents"
SLOT = 2048  # names of sessions and groups have up to 200 characters
FIRST_SLOTS = 512
NO_SLOT = -1

_HEAD = struct.Struct("<BH")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str, str, int]).decode
logger = logging.getLogger("weir.store.log.intents")


class State(enum.IntEnum):
    """What a slot says of its call."""

    FREE = 0
    UPSTREAM = 1
    UNRECORDED = 2  # it ended, and the log did not take its record


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A call in a slot."""

    state: State
    call_id: str
    session_id: str
    group_id: str
    started_us: int


class Intents:
    """The slots of one writer. One thread at a time uses it; `LogWriter` closes it."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._path = folder / FILE
        self._disk = disk
        self._fd = -1
        self._memory: mmap.mmap | None = None
        self._free: list[int] = []
        self._num_used = 0

    def begin(self, call_id: str, session_id: str, group_id: str, started_us: int) -> int:
        """Note a call that goes upstream; returns its slot. `NO_SLOT` where the disk has no room: that is logged."""
        if not self._free:
            try:
                self._grow()
            except OSError as error:
                logger.error("call %s goes upstream without an intent in %s: %s", call_id, self._path, error)
                return NO_SLOT
        payload = _encode((call_id, session_id, group_id, started_us))
        slot = self._free.pop()
        self._num_used += 1
        memory, at = self._memory, slot * SLOT
        assert memory is not None
        memory[at + 1 : at + 3 + len(payload)] = len(payload).to_bytes(2, "little") + payload
        memory[at] = State.UPSTREAM
        return slot

    def end(self, slot: int) -> None:
        """The call's record is in the log."""
        if slot != NO_SLOT and self._memory is not None:
            self._memory[slot * SLOT] = State.FREE
            self._free.append(slot)
            self._num_used -= 1

    def unrecorded(self, slot: int) -> None:
        """The call ended and the log did not take its record: the slot keeps saying so."""
        if slot != NO_SLOT and self._memory is not None:
            self._memory[slot * SLOT] = State.UNRECORDED

    def close(self) -> None:
        """Delete the file where no call is left in it. May be called twice."""
        if self._memory is None:
            return
        self._memory.close()
        self._memory = None
        self._disk.close(self._fd)
        if self._num_used == 0:
            with contextlib.suppress(OSError):  # whoever collects lost calls finds an empty file
                self._disk.unlink(self._path)

    def _grow(self) -> None:
        """Double the slots. The room is reserved first: a page that the disk has no room for would kill the process."""
        if self._fd < 0:
            self._fd = self._disk.open(self._path, os.O_RDWR | os.O_CREAT)
        before = 0 if self._memory is None else len(self._memory) // SLOT
        after = max(2 * before, FIRST_SLOTS)
        self._disk.reserve(self._fd, after * SLOT)
        if self._memory is None:
            self._memory = mmap.mmap(self._fd, after * SLOT)
        else:
            self._memory.resize(after * SLOT)
        self._free = list(range(after - 1, before - 1, -1))


def read_intents(folder: Path) -> Sequence[Intent]:
    """The calls in a writer's slots; empty where it has none."""
    try:
        data = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for at in range(0, len(data) - SLOT + 1, SLOT):
        state, length = _HEAD.unpack_from(data, at)
        if state != State.FREE:
            start = at + _HEAD.size
            call_id, session_id, group_id, started_us = _decode(data[start : start + length])
            found.append(
                Intent(
                    state=State(state), call_id=call_id, session_id=session_id, group_id=group_id, started_us=started_us
                )
            )
    return found
