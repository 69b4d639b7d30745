"""Snapshots: nobody waits for the reading of a log, and what happens to the store meanwhile loses no call."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support_store_fixtures import MakeCall, Record

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import FileChange, Publication, file_set, publish
from weir.store.config import StoreConfig
from weir.store.log.segment_format import Segment, SegmentContents
from weir.store.maintenance.compact import compact
from weir.store.maintenance.merge import WIDTH
from weir.store.parquet.files import read_row_groups
from weir.store.query.snapshot import Snapshot, take_snapshot


@pytest.fixture
def after_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has something done once, just after the first segment that is read next."""

    def arrange(action: Callable[[], object]) -> None:
        def read_and_act(segment: Segment) -> SegmentContents:
            monkeypatch.setattr(Segment, "read", read)
            contents = read(segment)
            action()
            return contents

        read = Segment.read
        monkeypatch.setattr(Segment, "read", read_and_act)

    return arrange


@contextmanager
def snapshot_of(config: StoreConfig, sessions: list[str] | None) -> Iterator[Snapshot]:
    snapshot = take_snapshot(config, sessions=sessions)
    try:
        yield snapshot
    finally:
        snapshot.pin.release()


def call_ids(snapshot: Snapshot) -> list[str]:
    stored = [i for path in snapshot.paths for part in read_row_groups(path) for i in part["call_id"].to_pylist()]
    return sorted([*stored, *(call.call_id for call in snapshot.hot)])


@pytest.mark.parametrize("sessions", [None, ["s"]], ids=["all", "some"])
def test_sqlite_is_checkpointed_while_a_snapshot_reads_the_log(
    config: StoreConfig,
    record: Record,
    make_call: MakeCall,
    after_reading: Callable[[Callable[[], object]], None],
    sessions: list[str] | None,
) -> None:
    record([make_call("a", [1], [2])])
    catalog = Catalog.open(config)
    left: list[tuple[int, ...]] = []

    def write_and_checkpoint() -> None:
        catalog.register_session("later", "g", task=None, group_size=None, metadata={}, key_hash=None)
        with sqlite3.connect(config.folder / "catalog.sqlite", timeout=0) as connection:
            left.append(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())

    after_reading(write_and_checkpoint)
    with snapshot_of(config, sessions) as snapshot:
        assert call_ids(snapshot) == ["a"]
    catalog.close()
    assert left == [(0, 0, 0)], "not busy, and nothing is left in the write-ahead log"


def test_files_that_are_merged_with_the_log_while_it_is_read_are_read_as_one(
    config: StoreConfig, record: Record, make_call: MakeCall, after_reading: Callable[[Callable[[], object]], None]
) -> None:
    names = [f"c{number}" for number in range(WIDTH)]
    for at, name in enumerate(names):
        record([make_call(name, [1], [at], at=(at + 1) * 1_000_000)], writer=name)
        if name != names[-1]:
            compact(config)
    merged: list[int] = []
    after_reading(lambda: merged.append(compact(config).files_merged))
    with snapshot_of(config, ["s"]) as snapshot:
        assert merged == [WIDTH]
        assert (len(snapshot.paths), snapshot.hot) == (1, [])
        assert call_ids(snapshot) == names


def test_a_segment_that_a_repair_takes_out_of_a_file_while_the_log_is_read_is_read(
    config: StoreConfig, record: Record, make_call: MakeCall, after_reading: Callable[[Callable[[], object]], None]
) -> None:
    kept = config.model_copy(update={"segment_grace_s": 3600.0})
    record([make_call("a", [1], [2])], writer="first")
    compact(kept)
    record([make_call("b", [1], [3], at=2_000_000)], writer="second")

    def take_out() -> None:
        catalog = Catalog.open(kept)
        with catalog.reading().begin() as connection:
            known = file_set(connection)
        change = FileChange(replaced=known.files)
        publish(catalog, Publication(changes=[change], reopened=sorted(known.compacted)), known.generation)
        catalog.close()

    after_reading(take_out)
    with snapshot_of(kept, ["s"]) as snapshot:
        assert snapshot.paths == []
        assert call_ids(snapshot) == ["a", "b"]
