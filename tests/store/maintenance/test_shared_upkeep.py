"""Upkeep of a store in object storage: missing, changed and unknown objects are repaired; copies stay few."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support_clock import DAY_S, Clock
from support_processes import ended
from support_s3 import S3Server
from support_store_processes import read_and_die
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.shared_segments import shared_segments
from weir.store.config import StoreConfig
from weir.store.errors import StoreCorrupt
from weir.store.log.writer import LogWriter, lock_file
from weir.store.maintenance.compact import compact
from weir.store.maintenance.upkeep import collect_garbage
from weir.store.maintenance.verify import verify
from weir.store.query.stored_call import StoredCalls
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import CallRecord
from weir.store.shared import local_copies
from weir.store.shared.local_copies import delete_copies
from weir.store.shared.log import LogSharing
from weir.store.shared.object_store import Objects
from weir.store.shared.part_copies import part_copies
from weir.store.transfer.import_file import import_jsonl

MakeCall = Callable[..., CallRecord]


@pytest.fixture
def shared(s3: S3Server, tmp_path: Path) -> Callable[[str], StoreConfig]:
    """Settings of a machine by its name, without a grace before deletion."""
    given = {
        "root": s3.new_root(),
        "s3_endpoint": s3.url,
        "catalog_url": f"sqlite:///{tmp_path / 'shared.sqlite'}",
        "segment_grace_s": 0,
        "orphan_grace_s": 0,
    }
    return lambda name: StoreConfig.model_validate({**given, "local_folder": tmp_path / name})


@pytest.fixture
def one(shared: Callable[[str], StoreConfig]) -> StoreConfig:
    return shared("one")


@pytest.fixture
def objects(one: StoreConfig) -> Objects:
    assert isinstance(one.root, str)
    return Objects(one.root, one.s3_endpoint)


@pytest.fixture
def catalog(one: StoreConfig) -> Iterator[Catalog]:
    opened = Catalog.open(one)
    yield opened
    opened.close()


@pytest.fixture
def record(one: StoreConfig, make_call: MakeCall) -> Callable[..., None]:
    """Records one call per name, each in a group of its own, and shares the log; compacted by default."""

    def write(*names: str, compacted: bool = True) -> None:
        catalog = Catalog.open(one)
        sharing = LogSharing(one, catalog, f"writer-{names[0]}")
        log = LogWriter(one.folder, f"writer-{names[0]}", one)
        for name in names:
            log.append(make_call(name, [1, 2, 3], [4] * 50, group_id=name, session_id=name)).result(120)
        log.close()
        sharing.close()
        catalog.close()
        if compacted:
            compact(one)

    return write


def names(config: StoreConfig) -> list[str]:
    with connect(config) as db:
        return [name for (name,) in db.execute("SELECT call_id FROM calls ORDER BY 1").fetchall()]


def replace(objects: Objects, key: str, content: bytes) -> None:
    objects.delete([key])
    objects.put(key, content)


def content(objects: Objects, key: str) -> bytes:
    found = objects.read(key)
    assert found is not None
    return found


def test_an_object_that_is_gone_cut_off_or_changed_is_named_and_put_again_from_a_copy(
    one: StoreConfig, objects: Objects, record: Any
) -> None:
    record("a"), record("b"), record("c")
    assert verify(one).findings == []
    keys = objects.names("data")
    before = {key: content(objects, key) for key in keys}
    objects.delete(keys[:1])
    replace(objects, keys[1], before[keys[1]][:-100])
    replace(objects, keys[2], before[keys[2]][:-1] + b"?")
    verdict = verify(one)
    assert not verdict.is_sound and len(verdict.findings) == 3
    for key, why in zip(keys, ("is gone", "bytes instead of", "another content"), strict=True):
        assert [why in finding for finding in verdict.findings if key in finding] == [True]
    done = verify(one, fix=True).repair
    assert done is not None and (done.restored, done.left_out) == (3, 0)
    assert {key: content(objects, key) for key in objects.names("data")} == before
    assert verify(one).findings == []


def test_without_a_copy_what_can_be_read_is_kept_and_the_rest_is_named(
    one: StoreConfig, shared: Any, objects: Objects, record: Any
) -> None:
    record("a"), record("b")
    gone, cut = objects.names("data")
    [of_cut] = [name for name in ("a", "b") if name != _name_in(one, gone)]
    objects.delete([gone])
    replace(objects, cut, content(objects, cut)[:-100])
    other = shared("two")
    verdict = verify(other)
    assert not verdict.is_sound
    assert any(gone in finding and "gone, with 1 calls" in finding for finding in verdict.findings)
    assert any(cut in finding and "bytes instead of" in finding for finding in verdict.findings)
    done = verify(other, fix=True).repair
    assert done is not None and done.left_out == 2
    assert [Path(name).exists() for name in done.quarantined] == [True]
    assert names(shared("three")) == []
    assert verify(other).is_sound
    assert of_cut in ("a", "b")


def _name_in(config: StoreConfig, key: str) -> str:
    import pyarrow.parquet as pq

    [name] = pq.read_table(config.folder / key)["call_id"].to_pylist()
    return str(name)


def test_a_segment_that_is_gone_is_put_again_by_its_machine_and_given_up_by_another(
    one: StoreConfig, shared: Any, objects: Objects, record: Any
) -> None:
    record("a", compacted=False)
    [key] = objects.names("log")
    objects.delete([key])
    with pytest.raises(StoreCorrupt, match=r"is gone, and its calls are in no file yet; weir store verify --repair"):
        names(shared("two"))
    assert names(one) == ["a"]
    verdict = verify(one)
    assert verdict.findings == [f"object {key}: its object is gone, and a whole copy is on this machine"]
    done = verify(one, fix=True).repair
    assert done is not None and done.restored == 1
    assert names(shared("two")) == ["a"]
    record("b", compacted=False)
    objects.delete(objects.names("log"))
    done = verify(shared("three"), fix=True).repair
    assert done is not None and done.given_up == 1
    assert names(shared("three")) == ["a"]


def test_a_segment_that_nobody_told_the_catalog_of_is_taken_in(
    one: StoreConfig, shared: Any, objects: Objects, catalog: Catalog, record: Any
) -> None:
    from weir.store.catalog.shared_segments import remove_shared_segments

    record("a", compacted=False)
    remove_shared_segments(catalog, list(shared_segments(catalog)))
    other = shared("two")
    assert names(other) == []
    [finding] = verify(other).findings
    assert "log/writer-a" in finding and "the catalog does not name it" in finding
    assert verify(other, fix=True).repair is not None
    assert names(other) == ["a"]
    assert verify(other).is_sound


def test_files_that_nobody_named_are_taken_in_or_deleted_where_all_is_stored_and_foreign_objects_stay(
    one: StoreConfig, shared: Any, objects: Objects, catalog: Catalog, record: Any, clock: Clock
) -> None:
    record("a")
    [key] = objects.names("data")
    other_name = "0" * 32 + key[len("data/") + 32 :]
    objects.put(f"data/{other_name}", content(objects, key))
    objects.put("data/notes.txt", b"mine")
    patient = one.model_copy(update={"orphan_grace_s": 2 * DAY_S})
    assert verify(patient).findings == ["object data/notes.txt: it is none of the store's, and is left alone"]
    assert verify(patient).is_sound
    clock.move(DAY_S)
    assert collect_garbage(patient)[1].leftovers == 0
    clock.move(2 * DAY_S)
    assert not verify(patient).is_sound
    assert collect_garbage(patient)[1].leftovers == 1
    assert objects.names("data") == [key, "data/notes.txt"]
    with catalog.writing().begin() as connection:  # as a catalog that was restored from before
        from weir.store.catalog import schema as t

        for table in (t.file_sources, t.call_ends, t.file_groups, t.file_sessions, t.files, t.segments):
            connection.execute(table.delete())
    collect_garbage(one)
    assert key in objects.names("data"), "its calls are stored nowhere else"
    done = verify(one, fix=True).repair
    assert done is not None and done.adopted == 1
    assert names(shared("two")) == ["a"]
    assert verify(one).is_sound
    assert key not in objects.names("data")


def test_copies_are_bounded_and_the_least_recently_used_go_first(
    one: StoreConfig, shared: Any, record: Any, catalog: Catalog
) -> None:
    import os

    record("a"), record("b"), record("c")
    sizes = {path.name: path.stat().st_size for path in one.data_dir.iterdir()}
    first, second, third = sorted(one.data_dir.iterdir())
    for at, path in enumerate((second, third, first)):
        os.utime(path, (at, at))
    bounded = one.model_copy(update={"local_copies_bytes": sizes[first.name] + sizes[third.name]})
    assert delete_copies(bounded) == 1
    assert sorted(one.data_dir.iterdir()) == [first, third]
    nothing = one.model_copy(update={"local_copies_bytes": 0})
    with connect(nothing) as db:
        assert len(list(one.data_dir.iterdir())) == 3
        assert delete_copies(nothing) == 0, "all of them are being read"
        assert compact(nothing).segments == 0
        assert db.sql("SELECT count(*) FROM calls").fetchall() == [(3,)]
    del db
    while list(one.data_dir.iterdir()):  # the connection's thread releases them
        delete_copies(nothing)
    assert [call.prompt_ids.tolist() for call in load_calls(nothing, ["b"])["b"]] == [[1, 2, 3]]
    assert list(one.data_dir.iterdir()) == []
    found = StoredCalls(nothing, catalog).read("c")
    assert found is not None and found.call_id == "c"
    assert list(one.data_dir.iterdir()) == list((one.folder / "reading").iterdir()) == []


def test_what_a_killed_reader_noted_holds_no_copy(one: StoreConfig, record: Any) -> None:
    record("a")
    nothing = one.model_copy(update={"local_copies_bytes": 0})
    assert ended(read_and_die, nothing) == -signal.SIGKILL
    assert len(list((one.folder / "reading").iterdir())) == 1
    assert delete_copies(nothing) == 1


def test_a_reader_that_ends_while_copies_are_counted_stops_nobody(
    one: StoreConfig, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record("a"), record("b")
    reader = local_copies.Copies(one)
    reader.fetch([f"data/{path.name}" for path in one.data_dir.iterdir()])

    def lock_then_end(note: Path) -> int:
        try:
            return lock_file(note)
        finally:
            reader.close()

    def list_then_delete(folder: Path) -> list[Path]:
        return [folder / "parts" / "gone", *part_copies(folder)]

    monkeypatch.setattr(local_copies, "lock_file", lock_then_end)
    monkeypatch.setattr(local_copies, "part_copies", list_then_delete)
    assert delete_copies(one.model_copy(update={"local_copies_bytes": 0})) == 2
    assert list((one.folder / "reading").iterdir()) == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_copy_of_what_retention_took_out_elsewhere_is_garbage(
    one: StoreConfig, shared: Any, clock: Clock, record: Any
) -> None:
    record("old")
    other = shared("two")
    assert names(other) == ["old"]
    kept = one.model_copy(update={"retention_days": 2.0})
    for _ in range(3):
        clock.move(DAY_S)
        compact(kept)
    assert names(other) == names(one) == []
    assert verify(other, fix=True).is_sound
    assert len(list(other.data_dir.iterdir())) == 1
    assert collect_garbage(other)[1].leftovers == 1
    assert list(other.data_dir.iterdir()) == []


def test_an_import_on_one_machine_is_read_on_all(one: StoreConfig, shared: Any, tmp_path: Path) -> None:
    lines = [
        {"session_id": f"s{i}", "group_id": "g", "prompt_ids": [1, 2], "completion_ids": [3 + i], "reward": 0.5,
         "completion_logprobs": [-0.5], "completion_mask": [1]}
        for i in range(3)
    ]  # fmt: skip
    file = tmp_path / "given.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = import_jsonl(one, file, weight_version=3)
    assert (report.trajectories, report.calls) == (3, 3)
    before = load_calls(shared("two"), ["s0", "s1", "s2"])
    assert [[call.output_ids.tolist() for call in before[f"s{i}"]] for i in range(3)] == [[[3]], [[4]], [[5]]]
    compact(shared("two"))
    import_jsonl(one, file, weight_version=3)
    compact(one)
    with connect(shared("three")) as db:
        assert db.sql("SELECT count(*), avg(reward) FROM sessions").fetchall() == [(3, 0.5)]
        assert db.sql("SELECT count(*) FROM calls").fetchall() == [(3,)]


def test_the_command_line_imports_verifies_and_collects_in_object_storage(
    one: StoreConfig, objects: Objects, tmp_path: Path
) -> None:
    given = one.model_dump(mode="json", exclude_unset=True)
    config = tmp_path / "weir.toml"
    config.write_text("[store]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))
    line = {"session_id": "s", "group_id": "g", "prompt_ids": [1], "completion_ids": [2], "completion_logprobs": [-1]}
    file = tmp_path / "given.jsonl"
    file.write_text(json.dumps({**line, "completion_mask": [1]}) + "\n")

    def weir(*words: str) -> str:
        return CliRunner().invoke(app, [*words, "--config", str(config)]).output

    assert "1 calls" in weir("import", str(file), "--weight-version", "1")
    assert "compacted 1 segments: 1 calls" in weir("store", "compact")
    assert "the store is sound" in weir("store", "verify")
    objects.delete(objects.names("data"))
    assert "its object is gone, and a whole copy is on this machine" in weir("store", "verify")
    assert "objects put again from copies: 1" in weir("store", "verify", "--repair")
    assert "0 leftovers" in weir("store", "gc")
    assert "the store is sound" in weir("store", "verify")
