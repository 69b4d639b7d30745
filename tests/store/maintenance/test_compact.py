"""Compaction: the same calls before and after, whatever is killed in between, and parents that arrive late."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support_stores import frame_bytes

from weir.store.config import StoreConfig
from weir.store.errors import CompactionRunning, SchemaTooNew, StoreCorrupt
from weir.store.log.segment_format import header_bytes, list_segments
from weir.store.log.writer import LogWriter, lock_file
from weir.store.maintenance.compact import compact
from weir.store.parquet.columns import call_tokens
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import SCHEMA_VERSION, CallRecord, encode_record, unpack_ids
from weir.store.records.tree import link


def conversation(make_call: Any, session: str, turns: int, rng: random.Random, group: str = "g") -> list[CallRecord]:
    """Turns that continue each other, with an occasional retry and a fork at the end."""
    calls: list[CallRecord] = []
    prompt = [rng.randrange(50) for _ in range(rng.randrange(1, 600))]
    for turn in range(turns):
        names = [f"{session}-{turn}"] + ([f"{session}-{turn}-again"] if rng.random() < 0.3 else [])
        for name in names:
            output = [rng.randrange(50) for _ in range(rng.randrange(1, 20))]
            at = 1_000_000 * (10 * turn + len(calls))
            half = len(output) // 2
            spans = [(half, str(turn)), (len(output) - half, str(turn + 1))] if half else [(len(output), str(turn))]
            calls.append(make_call(name, prompt, output, session_id=session, group_id=group, at=at, versions=spans))
        prompt = prompt + output + [rng.randrange(50) for _ in range(3)]
    return calls


def seen(config: StoreConfig) -> list[tuple[Any, ...]]:
    """Every call as readers see it in SQL, sorted."""
    with connect(config) as db:
        return db.sql(
            "SELECT call_id, session_id, group_id, parent_call, prefix_len, depth, root_call, role, twin_of, ambiguous,"
            " num_prompt_tokens, output_ids, output_logprobs, spans, request, answer, started_us FROM calls ORDER BY 1"
        ).fetchall()


def expected_places(records: list[CallRecord]) -> dict[str, tuple[Any, ...]]:
    places = link([call_tokens(record) for record in records])
    return {
        name: (at.parent_call, at.prefix_len, at.depth, at.root_call, at.role.value, at.twin_of, at.ambiguous)
        for name, at in places.items()
    }


def assert_holds(config: StoreConfig, records: list[CallRecord]) -> None:
    """Assert that SQL and load_calls give every record once, whole, and in its place."""
    rows = seen(config)
    assert [row[0] for row in rows] == sorted(record.call_id for record in records)
    assert {row[0]: row[3:10] for row in rows} == expected_places(records)
    loaded = load_calls(config, sorted({record.session_id for record in records}))
    stored = {call.call_id: call for calls in loaded.values() for call in calls}
    assert len(stored) == len(records)
    for record in records:
        call = stored[record.call_id]
        np.testing.assert_array_equal(call.prompt_ids, unpack_ids(record.prompt_ids))
        np.testing.assert_array_equal(call.output_ids, unpack_ids(record.output_ids))
        assert call.output_logprobs.tobytes() == record.output_logprobs
        assert call.versions.tolist() == [s.version for s in record.spans for _ in range(s.start, s.end)]


def test_compaction_changes_nothing_that_readers_see(config: StoreConfig, record: Any, make_call: Any) -> None:
    rng = random.Random(1)
    records = conversation(make_call, "s", 6, rng) + conversation(make_call, "t", 4, rng, group="h")
    record(records)
    before = seen(config)
    num_segments = len(list_segments(config.log_dir))
    report = compact(config)
    assert (report.segments, report.calls) == (num_segments, len(records))
    assert seen(config) == before
    assert_holds(config, records)
    assert compact(config).calls == 0
    assert list_segments(config.log_dir) == []  # the grace of this store is zero
    assert seen(config) == before


def test_prompts_are_stored_as_what_they_add_and_sorted_by_group_session_depth(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    first = make_call("a", range(5000), [1, 2], at=1_000_000)
    second = make_call("b", [*range(5000), 1, 2, 7], [3], at=2_000_000)
    other = make_call("c", [9], [3], session_id="r", at=3_000_000)
    record([second, other, first])
    compact(config)
    [path] = (config.root / "data").iterdir()
    rows = pq.read_table(path).select(["call_id", "base_call", "base_len", "prompt_suffix"]).to_pylist()
    assert [(row["call_id"], row["base_call"], row["base_len"], len(row["prompt_suffix"])) for row in rows] == [
        ("c", None, 0, 1),
        ("a", None, 0, 5000),
        ("b", "a", 5002, 1),
    ]
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    chunk = {column.path_in_schema: set(column.encodings) for column in columns}
    for name in ("prompt_suffix", "output_ids", "output_logprobs"):
        assert "BYTE_STREAM_SPLIT" in chunk[f"{name}.list.element"]


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_arrival_over_processes_and_compactions_gives_the_same_trees(
    config: StoreConfig, record: Any, make_call: Any, seed: int
) -> None:
    rng = random.Random(seed)
    records = [call for name in "stu" for call in conversation(make_call, name, 4, rng)]
    rng.shuffle(records)
    cuts = sorted(rng.sample(range(len(records)), 3))
    for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        record(records[start:end], writer=f"proxy-{rng.randrange(2)}")
        if rng.random() < 0.7:
            compact(config)
        assert_holds(config, records[:end])
    compact(config)
    assert_holds(config, records)


BOUNDARIES = {
    "before the file is written": "kill_before(parquet_files.CallFileWriter, 'write')",
    "when the file is half written": "kill_inside_write()",
    "before the file is renamed": "kill_after(parquet_files.CallFileWriter, 'finish')",
    "before the catalog knows the file": "kill_before(compact, 'publish')",
    "inside the catalog's transaction": "kill_on_commit()",
    "before old segments are deleted": "kill_after(compact, 'publish')",
    "before the deletion is noted": "kill_before(garbage, 'note_deleted')",
}
KILLER = """
import os, sys
from pathlib import Path
import sqlalchemy
from weir.store.catalog import files as catalog_files
from weir.store.maintenance import compact, garbage
from weir.store.parquet import files as parquet_files
from weir.store.config import StoreConfig
die = lambda *a, **k: os.kill(os.getpid(), 9)
def kill_before(module, name):
    setattr(module, name, die)
def kill_after(module, name):
    real = getattr(module, name)
    setattr(module, name, lambda *a, **k: (real(*a, **k), die()))
def kill_inside_write():
    def torn(writer, table):
        writer._file.write(b"PAR1half"); writer._file.flush(); die()
    parquet_files.CallFileWriter.write = torn
def kill_on_commit():
    @sqlalchemy.event.listens_for(sqlalchemy.Engine, "commit")
    def commit(connection):
        if connection.get_execution_options().get("weir_write") and armed:
            die()
armed = False
config = StoreConfig(root=Path(sys.argv[1]), segment_grace_s=0)
real_publish = compact.publish
def arm(*a, **k):
    global armed
    armed = True
    return real_publish(*a, **k)
compact.publish = arm
exec(sys.argv[2])
compact.compact(config)
"""


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_killed_at_any_boundary_nothing_is_lost_or_doubled(
    config: StoreConfig, record: Any, make_call: Any, boundary: str
) -> None:
    rng = random.Random(3)
    early, late = conversation(make_call, "s", 3, rng), conversation(make_call, "t", 3, rng)
    record(early, writer="first")
    compact(config)
    record(late, writer="second")
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(config.root), BOUNDARIES[boundary]], capture_output=True, timeout=120
    )
    assert done.returncode == -9, done.stderr.decode()
    assert_holds(config, early + late)
    compact(config)
    assert_holds(config, early + late)
    compact(config)
    assert list_segments(config.log_dir) == []
    with connect(config) as db:
        assert db.sql("SELECT count(*) FROM calls").fetchall() == [(len(early + late),)]


def test_segments_that_a_dead_writer_left_open_are_compacted_with_their_torn_end(
    config: StoreConfig, make_call: Any
) -> None:
    folder = config.log_dir / "dead"
    folder.mkdir(parents=True)
    kept = make_call("a", [1], [2])
    frame = frame_bytes(encode_record(kept))
    (folder / "00000001.wal").write_bytes(header_bytes(1) + frame + frame[:-9] + bytes(100))
    report = compact(config)
    assert (report.segments, report.calls, report.bytes_dropped) == (1, 1, len(frame) - 9)
    assert_holds(config, [kept])


def test_a_living_writer_seals_when_it_is_asked(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [1], [2])], seal=False)
    assert compact(config).segments == 0
    assert compact(config, seal_open=True).calls == 1
    record_again = make_call("b", [1, 2, 3], [4])
    record([record_again], writer="other")
    assert [row[0] for row in seen(config)] == ["a", "b"]


def test_a_call_that_was_appended_twice_counts_once(config: StoreConfig, record: Any, make_call: Any) -> None:
    call = make_call("a", [1], [2])
    record([call, call])
    assert_holds(config, [call])
    compact(config)
    record([call], writer="other")
    assert_holds(config, [call])
    compact(config)
    assert_holds(config, [call])


def test_readers_see_every_acknowledged_call_once_while_writers_write_and_compaction_runs(
    config: StoreConfig, make_call: Any
) -> None:
    stop, written = threading.Event(), 0
    kept = config.model_copy(update={"segment_grace_s": 60.0, "seal_age_s": 0.1})
    log = LogWriter(kept.root, "proxy", kept)

    def write() -> None:
        nonlocal written
        while not stop.is_set() and written < 2000:
            log.append(make_call(f"{written:06d}", [written], [1], session_id=f"s{written % 7}")).result(120)
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            compaction = threading.Thread(target=compact, args=(kept,))
            compaction.start()
            before = written
            with connect(kept) as db:
                names = [name for (name,) in db.sql("SELECT call_id FROM calls ORDER BY 1").fetchall()]
            assert len(names) >= before
            assert names == [f"{i:06d}" for i in range(len(names))]
            compaction.join()
    finally:
        stop.set()
        writer.join()
        log.close()
    with connect(kept) as db:
        assert db.sql("SELECT count(*), count(DISTINCT call_id) FROM calls").fetchall() == [(written, written)]


def test_one_process_compacts_at_a_time(config: StoreConfig) -> None:
    compact(config)
    held = lock_file(config.root / "compact.lock")
    with pytest.raises(CompactionRunning, match="another process"):
        compact(config)
    os.close(held)
    assert compact(config).segments == 0


def test_a_damaged_file_is_noticed_when_a_call_is_rebuilt(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", range(100), [1, 2])])
    compact(config)
    [path] = (config.root / "data").iterdir()
    table = pq.read_table(path)
    at = table.schema.get_field_index("output_ids")
    changed = table.set_column(at, table.schema.field(at), pa.array([[1, 3]], pa.list_(pa.int32())))
    path.chmod(0o644)
    pq.write_table(changed, path)
    with pytest.raises(StoreCorrupt, match="call a: it does not match its stored hash"):
        load_calls(config, ["s"])


def test_a_segment_of_a_later_weir_stops_compaction_and_stays(config: StoreConfig) -> None:
    folder: Path = config.log_dir / "later"
    folder.mkdir(parents=True)
    (folder / "00000001.sealed.wal").write_bytes(header_bytes(1, schema=SCHEMA_VERSION + 1))
    with pytest.raises(SchemaTooNew):
        compact(config)
    assert len(list_segments(config.log_dir)) == 1
