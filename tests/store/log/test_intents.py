"""Intents of calls: what a killed process leaves, and a disk without room."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weir.store.disk import SYSTEM_DISK, SystemDisk
from weir.store.log.intents import FILE, FIRST_SLOTS, NO_SLOT, Intents, State, read_intents

NAME = "é" * 200  # as long as a name may be
BUSY = """
import random, sys
from pathlib import Path
from weir.store.disk import SYSTEM_DISK
from weir.store.log.intents import Intents
intents, slots, draw = Intents(Path(sys.argv[1]), SYSTEM_DISK), {}, random.Random(sys.argv[2])
for number in range(10**9):
    if slots and draw.random() < 0.5:
        call_id = draw.choice(list(slots))
        intents.end(slots.pop(call_id))
        print("-", call_id, flush=True)
    else:
        slots[f"call_{number}"] = intents.begin(f"call_{number}", "s" * draw.randrange(1, 200), "g", number)
        print("+", f"call_{number}", flush=True)
"""


def calls_in(folder: Path) -> dict[str, State]:
    return {one.call_id: one.state for one in read_intents(folder)}


def test_a_call_has_a_slot_until_its_record_is_written(tmp_path: Path) -> None:
    intents = Intents(tmp_path, SYSTEM_DISK)
    slots = [intents.begin(f"call_{n}", NAME, NAME, n) for n in range(3)]
    intents.end(slots[1])
    intents.unrecorded(slots[2])
    found = read_intents(tmp_path)
    assert [(one.call_id, one.state, one.started_us) for one in found] == [
        ("call_0", State.UPSTREAM, 0),
        ("call_2", State.UNRECORDED, 2),
    ]
    assert found[0].session_id == found[0].group_id == NAME
    assert intents.begin("call_3", "s", "g", 3) == slots[1], "a slot is used again"
    intents.close()
    assert set(calls_in(tmp_path)) == {"call_0", "call_2", "call_3"}


def test_a_writer_that_lost_nothing_leaves_no_file(tmp_path: Path) -> None:
    intents = Intents(tmp_path, SYSTEM_DISK)
    intents.end(intents.begin("call", "s", "g", 1))
    assert (tmp_path / FILE).exists()
    intents.close()
    intents.close()
    assert not (tmp_path / FILE).exists()
    assert read_intents(tmp_path) == []


def test_as_many_calls_as_there_are_have_slots(tmp_path: Path) -> None:
    intents = Intents(tmp_path, SYSTEM_DISK)
    slots = [intents.begin(f"call_{n}", "s", "g", n) for n in range(3 * FIRST_SLOTS)]
    assert len(set(slots)) == 3 * FIRST_SLOTS
    for slot in slots[1:]:
        intents.end(slot)
    assert list(calls_in(tmp_path)) == ["call_0"]


@pytest.mark.parametrize("seed", range(5))
def test_kill_9_leaves_the_calls_that_were_upstream(tmp_path: Path, seed: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(tmp_path), str(seed)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = [process.stdout.readline()]
    time.sleep(random.Random(seed).uniform(0.01, 0.2))
    process.kill()
    said += process.stdout.readlines()
    process.wait()
    upstream: set[str] = set()
    for line in said:
        if not line.endswith("\n"):
            continue  # killed while it wrote the line: that is what it did last
        sign, call_id = line.split()
        (upstream.add if sign == "+" else upstream.discard)(call_id)
    assert len(set(calls_in(tmp_path)) ^ upstream) <= 1, "but for what it did last and could not say"


class FullDisk(SystemDisk):
    """A disk without room for more."""

    def reserve(self, fd: int, num_bytes: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")


def test_without_room_a_call_goes_upstream_all_the_same_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    intents = Intents(tmp_path, FullDisk())
    slot = intents.begin("call_1", "s", "g", 1)
    assert slot == NO_SLOT and "call call_1 goes upstream without an intent" in caplog.text
    intents.end(slot)
    intents.unrecorded(slot)
    intents.close()
    assert read_intents(tmp_path) == []
