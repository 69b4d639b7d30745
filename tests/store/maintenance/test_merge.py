"""Merging: the same calls and places before and after, whatever is killed in between, also under open readers."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import file_set
from weir.store.catalog.rows import FileRow
from weir.store.config import StoreConfig
from weir.store.errors import CompactionRunning, StoreCorrupt
from weir.store.maintenance.compact import compact
from weir.store.maintenance.merge import FULL_BYTES, SMALLEST_BYTES, WIDTH, files_to_merge
from weir.store.query.stored_call import StoredCalls
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import CallRecord, unpack_ids


def rows(sizes: list[int]) -> list[FileRow]:
    return [
        FileRow(file_id=str(i), path=f"{i}", schema_version=2, num_calls=1, num_bytes=size, created_us=i)
        for i, size in enumerate(sizes)
    ]


def chosen(sizes: list[int]) -> list[int]:
    return [int(file.file_id) for file in files_to_merge(rows(sizes))]


def test_eight_files_of_a_like_size_are_merged_oldest_first_and_large_ones_never() -> None:
    small, middle = SMALLEST_BYTES // 2, 2 * SMALLEST_BYTES
    assert chosen([small] * (WIDTH - 1)) == []
    assert chosen([small, middle] + [small] * WIDTH) == [0, *range(2, WIDTH + 1)]
    assert chosen([middle] * WIDTH + [small] * (WIDTH - 1)) == list(range(WIDTH))
    assert chosen([FULL_BYTES] * 100) == []


def story(make_call: Callable[..., CallRecord], rng: random.Random, count: int) -> list[CallRecord]:
    """Conversations whose turns come in any order, so that parents arrive after their children."""
    calls: list[CallRecord] = []
    for session in range(-(-count // 5)):
        prompt = [rng.randrange(50) for _ in range(rng.randrange(1, 300))]
        for turn in range(5):
            output = [rng.randrange(50) for _ in range(rng.randrange(1, 20))]
            group = f"g{session % 3}"
            name, at = f"{session}-{turn}", 1_000_000 * (turn + 1)
            calls.append(
                make_call(
                    name,
                    prompt,
                    output,
                    session_id=f"s{session}",
                    group_id=group,
                    at=at,
                    digest=name.encode().ljust(16),
                )
            )
            prompt = [*prompt, *output, rng.randrange(50)]
    rng.shuffle(calls)
    return calls[:count]


def seen(config: StoreConfig) -> list[tuple[Any, ...]]:
    with connect(config) as db:
        return db.sql("SELECT * EXCLUDE (request, answer, sampling, agent_ids) FROM calls ORDER BY call_id").fetchall()


def paths(config: StoreConfig) -> list[Path]:
    catalog = Catalog.open(config)
    with catalog.reading().begin() as connection:
        files = file_set(connection).files
    catalog.close()
    return [config.root / file.path for file in files]


def file_names(config: StoreConfig) -> list[str]:
    return [path.name for path in config.data_dir.iterdir()]


def fill(config: StoreConfig, record: Any, calls: list[CallRecord], portions: int) -> None:
    """Compact a portion at a time, each into a file."""
    for i in range(portions):
        record(calls[i::portions], writer=f"w{i}")
        compact(config)


def assert_whole(config: StoreConfig, calls: list[CallRecord]) -> None:
    loaded = load_calls(config, sorted({call.session_id for call in calls}))
    stored = {call.call_id: call for session in loaded.values() for call in session}
    assert sorted(stored) == sorted(call.call_id for call in calls)
    for call in calls:
        assert stored[call.call_id].prompt_ids.tolist() == unpack_ids(call.prompt_ids).tolist()
        assert stored[call.call_id].output_ids.tolist() == unpack_ids(call.output_ids).tolist()


def test_a_merge_changes_nothing_that_readers_see_and_settles_late_parents(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    calls = story(make_call, random.Random(1), 60)
    fill(config, record, calls, WIDTH - 1)
    before = seen(config)
    assert len(paths(config)) == WIDTH - 1
    last = make_call("last", [7] * 900, [1], session_id="last", group_id="g9")
    record([last], writer="last")
    report = compact(config)
    assert report.files_merged == WIDTH
    [path] = paths(config)
    assert [row for row in seen(config) if row[0] != "last"] == before
    assert_whole(config, [*calls, last])
    table = pq.read_table(path)
    keys = list(
        zip(*(table[name].to_pylist() for name in ("group_id", "session_id", "depth", "started_us")), strict=True)
    )
    assert keys == sorted(keys)
    catalog = Catalog.open(config)
    with catalog.reading().begin() as connection:
        assert file_set(connection).relinks == {}
    found = StoredCalls(config, catalog).ending([b"1-3".ljust(16)])
    catalog.close()
    assert [call.call_id for call in found] == ["1-3"]
    assert file_names(config) == [path.name]  # the grace of this store is zero


def test_a_reader_keeps_its_files_until_it_is_done(config: StoreConfig, record: Any, make_call: Any) -> None:
    calls = story(make_call, random.Random(2), 40)
    fill(config, record, calls, WIDTH - 1)
    db = connect(config)
    record([make_call("last", [7], [1], session_id="last")], writer="last")
    assert compact(config).files_merged == WIDTH
    assert len(file_names(config)) == WIDTH + 1  # all that were replaced since the reader came, and the merged one
    assert db.sql("SELECT count(*) FROM calls WHERE len(output_ids) > 0").fetchall() == [(40,)]
    db.close()
    del db
    while len(file_names(config)) > 1:  # the connection's thread releases its pin
        compact(config)
    assert len(load_calls(config, ["last"])["last"]) == 1


BOUNDARIES = {
    "before the file is written": "kill_before(parquet_files.CallFileWriter, 'write')",
    "before the file is renamed": "kill_after(parquet_files.CallFileWriter, 'finish')",
    "before the catalog knows the file": "kill_before(merge, 'publish')",
    "inside the catalog's transaction": "kill_before(catalog_files, '_relink')",
    "before the replaced files are deleted": "kill_after(merge, 'publish')",
    "before the deletion is noted": "kill_before(garbage, 'note_deleted')",
}
KILLER = """
import os, sys
from pathlib import Path
from weir.store.catalog import files as catalog_files
from weir.store.maintenance import compact, garbage, merge
from weir.store.parquet import files as parquet_files
from weir.store.config import StoreConfig
die = lambda *a, **k: os.kill(os.getpid(), 9)
def kill_before(module, name):
    setattr(module, name, die)
def kill_after(module, name):
    real = getattr(module, name)
    setattr(module, name, lambda *a, **k: (real(*a, **k), die()))
exec(sys.argv[2])
compact.compact(StoreConfig(root=Path(sys.argv[1]), segment_grace_s=0))
"""


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_killed_at_any_boundary_of_a_merge_nothing_is_lost_or_doubled(
    config: StoreConfig, record: Any, make_call: Any, boundary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = story(make_call, random.Random(3), 40)
    with monkeypatch.context() as patched:
        patched.setattr("weir.store.maintenance.compact.merge_files", lambda *_: 0)
        fill(config, record, calls, WIDTH)
    before = seen(config)
    done = subprocess.run([sys.executable, "-c", KILLER, str(config.root), BOUNDARIES[boundary]], capture_output=True)
    assert done.returncode == -9, done.stderr.decode()
    assert seen(config) == before
    compact(config)
    assert seen(config) == before
    assert_whole(config, calls)
    assert len(paths(config)) == 1


def test_of_two_changes_that_were_prepared_at_once_one_is_refused_and_changes_nothing(
    config: StoreConfig, record: Any, make_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = story(make_call, random.Random(4), 20)
    record(calls[:10], writer="a")
    real = compact.__globals__["publish"]

    def late(catalog: Catalog, change: Any, generation: int) -> None:
        catalog_of_other = Catalog.open(config)
        real(catalog_of_other, type(change)(), generation)
        catalog_of_other.close()
        real(catalog, change, generation)

    with monkeypatch.context() as patched:
        patched.setattr("weir.store.maintenance.compact.publish", late)
        with pytest.raises(CompactionRunning, match="another process published"):
            compact(config)
    assert paths(config) == []
    compact(config)
    assert_whole(config, calls[:10])


def test_a_damaged_page_is_refused_by_a_merge_and_not_copied(config: StoreConfig, record: Any, make_call: Any) -> None:
    calls = story(make_call, random.Random(5), 40)
    fill(config, record, calls, WIDTH - 1)
    damaged = paths(config)[3]
    damaged.chmod(0o644)
    column = pq.ParquetFile(damaged).metadata.row_group(0).column(pa_column(damaged, "output_logprobs.list.element"))
    with open(damaged, "r+b") as file:
        file.seek(column.data_page_offset + column.total_compressed_size - 3)
        file.write(b"\xff\x00\xff")
    record([make_call("last", [7], [1], session_id="last")], writer="last")
    with pytest.raises(StoreCorrupt, match=damaged.name):
        compact(config)
    assert len(paths(config)) == WIDTH
    compacted = [row[0] for row in pa_ids(paths(config)[-1])]
    assert compacted == ["last"]  # what was new is stored all the same


def pa_column(path: Path, name: str) -> int:
    metadata = pq.ParquetFile(path).metadata
    return next(i for i in range(metadata.num_columns) if metadata.row_group(0).column(i).path_in_schema == name)


def pa_ids(path: Path) -> list[tuple[str]]:
    ids: pa.ChunkedArray = pq.read_table(path, columns=["call_id"])["call_id"]
    return [(name,) for name in ids.to_pylist()]
