"""A store on a disk that refuses, tears and forgets writes, while it is written, compacted, collected and repaired.

Acknowledged records are read back once, and the store opens.
"""

from __future__ import annotations

import random
from concurrent.futures import Future
from typing import Any

import pytest
from support_disk import FaultyDisk, changed
from support_stores import stored_names

from weir.store.config import StoreConfig
from weir.store.errors import StoreError, StoreUnavailable
from weir.store.log.segment_format import list_segments
from weir.store.log.writer import LogWriter
from weir.store.maintenance.compact import compact
from weir.store.maintenance.upkeep import collect_garbage
from weir.store.maintenance.verify import verify
from weir.store.reader import load_calls
from weir.store.records.call_record import CallRecord, unpack_ids

LIVES = 4  # of one store; each ends with the power cut, or with the process
WAIT_S = 60.0


class Life:
    """One process that appends to a store and maintains it, until the power cut or its end."""

    def __init__(self, config: StoreConfig, disk: FaultyDisk, rng: random.Random, make_call: Any, number: int) -> None:
        self.acknowledged: list[CallRecord] = []
        self._config, self._disk, self._rng = config, disk, rng
        self._make_call, self._number = make_call, number

    def live(self) -> None:
        try:
            log = LogWriter(self._config.root, "proxy", self._config, self._disk)
        except StoreUnavailable:
            return
        for step in range(12):
            self._append(log, step)
            if self._rng.random() < 0.3:
                self._look_after()
            if self._disk.is_off:
                break
        log.close()

    def _append(self, log: LogWriter, step: int) -> None:
        calls = [self._call(f"{self._number}-{step}-{i}") for i in range(self._rng.randrange(1, 12))]
        waiting: list[tuple[CallRecord, Future[None]]] = [(call, log.append(call)) for call in calls]
        for call, future in waiting:
            error = future.exception(WAIT_S)
            assert error is None or isinstance(error, StoreUnavailable)
            if error is None:
                self.acknowledged.append(call)

    def _call(self, name: str) -> CallRecord:
        rng = self._rng
        prompt = [rng.randrange(50_000) for _ in range(rng.randrange(1, 2500))]
        output = [rng.randrange(50_000) for _ in range(rng.randrange(1, 20))]
        call: CallRecord = self._make_call(name, prompt, output, group_id=f"g{rng.randrange(3)}")
        return call

    def _look_after(self) -> None:
        work = self._rng.choice((compact, collect_garbage, _repair))
        try:
            work(self._config, disk=self._disk)
        except (OSError, StoreError):
            assert self._disk.is_off or self._disk.refused


def _repair(config: StoreConfig, disk: FaultyDisk) -> None:
    verify(config, disk, fix=True)


def assert_holds(config: StoreConfig, promised: list[CallRecord]) -> None:
    """Assert that no acknowledged call is missing, doubled or changed in any token."""
    names = stored_names(config)
    assert len(names) == len(set(names))
    assert {call.call_id for call in promised} <= set(names)
    found = {call.call_id: call for call in load_calls(config, ["s"])["s"]}
    assert set(found) == set(names)
    for call in promised:
        assert found[call.call_id].prompt_ids.tolist() == unpack_ids(call.prompt_ids).tolist()
        assert found[call.call_id].output_logprobs.tobytes() == call.output_logprobs


@pytest.mark.parametrize("seed", range(16))
def test_with_fsync_no_refusal_and_no_power_cut_loses_what_was_acknowledged(
    config: StoreConfig, make_call: Any, seed: int
) -> None:
    rng = random.Random(seed)
    careful = config.model_copy(update={"durability": "fsync"})
    promised: list[CallRecord] = []
    for number in range(LIVES):
        disk = FaultyDisk(rng, refusals=rng.choice((0, 0.05, 0.2)), power_cut=rng.randrange(2, 150))
        life = Life(careful, disk, rng, make_call, number)
        life.live()
        disk.cut_power()
        promised += life.acknowledged
        assert_holds(careful, promised)
    compact(careful)
    assert_holds(careful, promised)
    assert list_segments(careful.log_dir) == []


@pytest.mark.parametrize("seed", range(8))
def test_handed_to_the_system_no_refusal_loses_what_was_acknowledged(
    config: StoreConfig, make_call: Any, seed: int
) -> None:
    rng = random.Random(seed)
    promised: list[CallRecord] = []
    for number in range(LIVES):
        life = Life(config, FaultyDisk(rng, refusals=rng.choice((0.05, 0.2))), rng, make_call, number)
        life.live()
        promised += life.acknowledged
        assert_holds(config, promised)
    compact(config)
    assert_holds(config, promised)


@pytest.mark.parametrize("seed", range(8))
def test_handed_to_the_system_a_power_cut_leaves_a_store_that_opens_and_goes_on(
    config: StoreConfig, make_call: Any, seed: int
) -> None:
    rng = random.Random(seed)
    compacted: set[str] = set()
    for number in range(LIVES):
        disk = FaultyDisk(rng, power_cut=rng.randrange(2, 150))
        life = Life(config, disk, rng, make_call, number)
        life.live()
        disk.cut_power()
        names = stored_names(config)
        assert len(names) == len(set(names)) == len(load_calls(config, ["s"])["s"])
        assert compacted <= set(names)
        compact(config)
        compacted = set(stored_names(config))
        late = make_call(f"late-{number}", [1, 2], [3])
        log = LogWriter(config.root, "proxy", config)
        log.append(late).result(WAIT_S)
        log.close()
        assert late.call_id in stored_names(config)


# the disk itself: a test that cannot fail shows nothing


def test_what_was_not_synced_is_lost_and_what_was_synced_stays(tmp_path: Any) -> None:
    disk = FaultyDisk(random.Random(1))
    names = ("bytes and name", "bytes", "neither")
    for name in names:
        fd = disk.open(tmp_path / name, 0o102)
        disk.write(fd, memoryview(b"x" * 5000), 0)
        if name != "neither":
            disk.sync(fd)
        if name == "bytes and name":
            disk.sync_folder(tmp_path)
        disk.write(fd, memoryview(b"y" * 5000), 5000)
        disk.close(fd)
    disk.cut_power()
    content = (tmp_path / "bytes and name").read_bytes()
    assert content[:5000] == b"x" * 5000
    assert set(content[5000:]) <= {0, ord("y")}
    seen = {(name, path.exists()) for seed in range(20) for name, path in _after_cut(tmp_path / str(seed), seed)}
    assert {("neither", True), ("neither", False)} <= seen


def _after_cut(folder: Any, seed: int) -> list[tuple[str, Any]]:
    folder.mkdir()
    disk = FaultyDisk(random.Random(seed))
    disk.close(disk.open(folder / "neither", 0o102))
    disk.cut_power()
    return [("neither", folder / "neither")]


def test_changes_of_a_file_are_writes_and_lengths_in_order() -> None:
    assert changed(b"abcdef", [(2, b"XY"), 3, 5, (7, b"!")]) == b"abX\0\0\0\0!"
