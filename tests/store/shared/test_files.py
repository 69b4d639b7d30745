"""Machines that share a store in object storage: each reads the others' calls, and rounds wait until they can."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from support_processes import ended
from support_s3 import S3Server
from support_store_processes import record_and_die
from support_stores import Recording
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import COMPACTION, held_lease
from weir.store.catalog.ready_groups import ready_groups
from weir.store.catalog.shared_segments import forget_log_writer, log_writers, set_shared_until
from weir.store.config import StoreConfig
from weir.store.errors import CompactionRunning
from weir.store.maintenance.compact import compact
from weir.store.query.stored_call import StoredCalls
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import CallRecord, unpack_ids
from weir.store.shared import log
from weir.store.shared.files import share_file
from weir.store.shared.log import share_left_behind
from weir.store.shared.object_store import Objects

Machine = Callable[[str], StoreConfig]
MakeCall = Callable[..., CallRecord]


@pytest.fixture
def machine(s3: S3Server, either_catalog: StoreConfig, tmp_path: Path) -> Machine:
    """The settings of a machine: a folder of its own, the root and the catalog of all."""
    root = s3.new_root()
    url = either_catalog.catalog_url or f"sqlite:///{tmp_path / 'shared.sqlite'}"

    def settings(name: str) -> StoreConfig:
        given = {"local_folder": tmp_path / name, "s3_endpoint": s3.url, "catalog_url": url, "segment_grace_s": 0}
        return StoreConfig.model_validate({"root": root, **given})

    return settings


@pytest.fixture
def catalog(machine: Machine) -> Iterator[Catalog]:
    opened = Catalog.open(machine("watching"))
    yield opened
    opened.close()


@pytest.fixture
def recording(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Recording]]:
    monkeypatch.setattr(log, "LOOK_S", 0.02)
    opened: list[Recording] = []

    def open_on(name: str, writer: str) -> Recording:
        opened.append(Recording(machine(name), writer))
        return opened[-1]

    yield open_on
    for one in opened:
        one.close()


def places(config: StoreConfig) -> list[tuple[object, ...]]:
    """Every call and its place in the trees."""
    with connect(config) as db:
        return db.execute("SELECT call_id, parent_call, depth, role FROM calls ORDER BY call_id").fetchall()


def objects_of(config: StoreConfig, folder: str) -> list[str]:
    assert isinstance(config.root, str)
    return Objects(config.root, config.s3_endpoint).names(folder)


def finished(catalog: Catalog, session_id: str, group_id: str) -> None:
    catalog.register_session(session_id, group_id, task=None, group_size=1, metadata={}, key_hash=None)
    catalog.finish_session(session_id, status="done", info={})


def ready(catalog: Catalog) -> list[str]:
    return [group.group_id for group in ready_groups(catalog)]


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.02)


def test_calls_of_two_machines_are_one_set_for_a_third(
    machine: Machine, recording: Callable[[str, str], Recording], make_call: MakeCall
) -> None:
    one, two = recording("a", "writer-a"), recording("b", "writer-b")
    one.record(make_call("c1", [1], [2]))
    two.record(make_call("c2", [1, 2, 3], [4], at=2_000_000))
    one.close(), two.close()
    expected = [("c1", None, 0, "root"), ("c2", "c1", 1, "turn")]
    assert places(machine("c")) == expected
    assert [call.call_id for call in load_calls(machine("d"), ["s"])["s"]] == ["c1", "c2"]
    assert compact(machine("b")).calls == 2
    for name in ("a", "b", "c", "new"):
        assert places(machine(name)) == expected
    assert [call.prompt_ids.tolist() for call in load_calls(machine("d"), ["s"])["s"]] == [[1], [1, 2, 3]]


def test_what_was_compacted_is_deleted_in_storage_and_on_every_machine(
    machine: Machine, recording: Callable[[str, str], Recording], make_call: MakeCall
) -> None:
    first, beside = recording("a", "writer-a"), recording("a", "writer-b")
    first.record(make_call("c1", [1], [2]))
    first.close()
    assert len(places(machine("c"))) == 1
    assert objects_of(machine("a"), "log") == ["log/writer-a/00000001.sealed.wal"]
    compact(machine("b"))
    compact(machine("b"))
    assert objects_of(machine("a"), "log") == []
    assert len(objects_of(machine("a"), "data")) == 1
    wait_until(lambda: not list(machine("a").log_dir.glob("*/*.wal")))  # by the sharing of the writer that is left
    beside.close()
    assert len(places(machine("c"))) == 1


def test_a_group_is_ready_once_the_calls_of_other_machines_can_be_read(
    catalog: Catalog, machine: Machine, recording: Callable[[str, str], Recording], make_call: MakeCall
) -> None:
    writer = recording("a", "writer-a")
    finished(catalog, "early", "g1")
    wait_until(lambda: ready(catalog) == ["g1"])
    writer.record(make_call("c1", [1], [2], session_id="late", group_id="g2"))
    finished(catalog, "late", "g2")
    before = log_writers(catalog)[0].seen_us
    wait_until(lambda: log_writers(catalog)[0].seen_us > before)
    assert ready(catalog) == ["g1"]
    writer.close()
    assert ready(catalog) == ["g1", "g2"]
    assert [call.call_id for call in load_calls(machine("trainer"), ["late"])["late"]] == ["c1"]
    assert log_writers(catalog) == []


def test_what_a_killed_writer_left_is_shared_by_the_next_on_its_machine(
    catalog: Catalog, machine: Machine, recording: Callable[[str, str], Recording], make_call: MakeCall
) -> None:
    assert ended(record_and_die, machine("a"), make_call("c1", [1], [2])) == -signal.SIGKILL
    finished(catalog, "s", "g")
    assert places(machine("trainer")) == []
    assert ready(catalog) == []
    share_left_behind(machine("trainer"), catalog)
    assert ready(catalog) == [], "only the machine that has the log can share it"
    recording("a", "writer-new")
    wait_until(lambda: ready(catalog) == ["g"])
    assert places(machine("trainer")) == [("c1", None, 0, "root")]


def test_a_machine_that_never_comes_back_holds_only_the_groups_of_its_time(catalog: Catalog, machine: Machine) -> None:
    finished(catalog, "s", "g")
    gone = {"writer": "writer-gone", "shared_us": 0, "seen_us": 0}
    with catalog.writing().begin() as connection:
        connection.execute(t.log_writers.insert().values(gone))
    assert ready(catalog) == ["g"], "the group began long after the machine was last seen"
    with catalog.writing().begin() as connection:
        connection.execute(t.log_writers.update().values(seen_us=sa.select(t.groups.c.created_us).scalar_subquery()))
    assert ready(catalog) == []
    forget_log_writer(catalog, "writer-gone")
    assert ready(catalog) == ["g"]


def test_the_command_line_names_logs_that_are_waited_for_and_forgets_them(
    catalog: Catalog, machine: Machine, recording: Callable[[str, str], Recording], make_call: MakeCall, tmp_path: Path
) -> None:
    store = machine("a").model_dump(mode="json", exclude_unset=True)
    file = tmp_path / "weir.toml"
    file.write_text("[store]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in store.items()))
    writer = recording("b", "writer-b")
    writer.record(make_call("c1", [1], [2]))
    writer.close()

    def weir(*words: str) -> str:
        return CliRunner().invoke(app, ["store", *words, "--config", str(file)]).output

    assert "1 sealed segments waiting" in weir("status")
    assert "others can read it" not in weir("status")
    set_shared_until(catalog, "writer-gone", 1)
    assert "writer-gone: others can read it up to 1970-01-01 00:00:00 UTC, seen 2" in weir("status")
    assert weir("forget", "writer-gone") == "writer-gone: forgotten\n"
    assert "there is no log 'writer-gone'" in str(
        CliRunner().invoke(app, ["store", "forget", "writer-gone", "--config", str(file)]).exception
    )


def test_a_storage_that_is_away_holds_groups_and_loses_nothing(
    catalog: Catalog, machine: Machine, make_call: MakeCall, free_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    cut_off = machine("a").model_copy(update={"s3_endpoint": f"http://127.0.0.1:{free_port}"})
    writer = Recording(cut_off, "writer-a")
    writer.record(make_call("c1", [1], [2]))
    finished(catalog, "s", "g")
    writer.close()
    assert "is not shared and will be retried" in caplog.text
    assert ready(catalog) == []
    share_left_behind(machine("a"), catalog)
    assert ready(catalog) == ["g"]
    assert len(places(machine("trainer"))) == 1


def test_one_machine_at_a_time_compacts(catalog: Catalog, machine: Machine) -> None:
    with held_lease(catalog, COMPACTION, "another machine", 60), pytest.raises(CompactionRunning):
        compact(machine("a"))
    assert compact(machine("a")).segments == 0


def test_files_made_of_the_same_segments_do_not_replace_each_other(machine: Machine) -> None:
    shared = []
    for name, content in (("a", b"one"), ("b", b"two"), ("c", b"one")):
        config = machine(name)
        config.data_dir.mkdir(parents=True)
        (config.data_dir / "same.parquet").write_bytes(content)
        shared.append(share_file(config, config.data_dir / "same.parquet").relative_to(config.folder))
    assert shared[0] == shared[2] != shared[1]
    assert objects_of(machine("a"), "data") == sorted({str(path) for path in shared})


def test_machines_that_record_while_others_compact_and_read_lose_and_repeat_nothing(
    machine: Machine, recording: Callable[[str, str], Recording], make_call: MakeCall
) -> None:
    ended = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not ended.is_set():
            seen.append(len(places(machine("reader"))))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(5):
        writers = [recording(name, f"writer-{name}-{turn}") for name in ("a", "b")]
        for number, writer in enumerate(writers):
            writer.record(*(make_call(f"c{turn}-{number}-{i}", [turn, number, i], [9]) for i in range(10)))
            writer.close()
        compact(machine("b"))
    ended.set()
    reader.join()
    assert seen == sorted(seen), "calls that a reader saw stay"
    assert len(places(machine("new"))) == 100


def test_a_clock_that_goes_back_does_not_make_a_group_ready_before_its_calls_are_shared(
    catalog: Catalog,
    machine: Machine,
    recording: Callable[[str, str], Recording],
    make_call: MakeCall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = log.catalog_time_us
    ahead_us = [3600 * 10**6]
    monkeypatch.setattr(log, "catalog_time_us", lambda catalog: real(catalog) + ahead_us[0])
    writer = recording("a", "writer-a")
    writer.record(make_call("c1", [1], [2], session_id="early", group_id="g"))
    seen = log_writers(catalog)[0].seen_us
    wait_until(lambda: log_writers(catalog)[0].seen_us > seen)
    ahead_us[0] = 0
    seen = log_writers(catalog)[0].seen_us
    wait_until(lambda: log_writers(catalog)[0].seen_us > seen)
    seen = log_writers(catalog)[0].seen_us
    wait_until(lambda: log_writers(catalog)[0].seen_us > seen)
    finished(catalog, "early", "g")
    seen = log_writers(catalog)[0].seen_us
    wait_until(lambda: log_writers(catalog)[0].seen_us > seen)
    assert ready(catalog) == [], "its call is in the open segment"
    writer.close()
    assert ready(catalog) == ["g"]


def test_readers_of_some_sessions_fetch_the_files_of_their_groups_and_no_others(
    machine: Machine, catalog: Catalog, recording: Callable[[str, str], Recording], make_call: MakeCall
) -> None:
    writer = recording("a", "writer-a")
    far_call = f"call_{400_000:012x}{1:020x}"
    batches = [
        [make_call("c1", [1], [2], session_id="s", group_id="g")],
        [make_call("c2", [1, 2, 3], [4], session_id="beside", group_id="g", at=2_000_000, digest=b"c2".ljust(16))],
        [make_call("c3", [5], [6], session_id="s", group_id="h", at=3_000_000)],  # a session may name another group
        [make_call(far_call, list(range(1000, 3000)), [7], session_id="far", group_id="f", at=400_000_000)],
    ]
    for calls in batches:
        writer.record(*calls)
        compact(machine("a"), seal_open=True)
    writer.close()
    sizes = {path.name: path.stat().st_size for path in machine("a").data_dir.glob("*.parquet")}
    with catalog.reading().begin() as connection:
        far = connection.scalar(sa.select(t.files.c.path).order_by(t.files.c.created_us.desc()).limit(1))
    assert len(sizes) == 4 and sizes[Path(far).name] == max(sizes.values())

    def fetched(name: str) -> int:
        return sum(path.stat().st_size for path in machine(name).data_dir.glob("*.parquet"))

    loaded = load_calls(machine("b"), ["s"])["s"]
    assert [(call.call_id, call.parent_call) for call in loaded] == [("c1", None), ("c3", None)]
    assert fetched("b") == sum(sizes.values()) - sizes[Path(far).name]
    [ended_by] = StoredCalls(machine("proxy"), catalog).ending([b"c2".ljust(16)])
    assert unpack_ids(ended_by.prompt_ids).tolist() == [1, 2, 3]
    assert len(list(machine("proxy").data_dir.glob("*.parquet"))) == 2, "those of its group"
    assert StoredCalls(machine("other-proxy"), catalog).group_of("far") == "f"
    assert fetched("other-proxy") == sizes[Path(far).name]
    by_id = StoredCalls(machine("by-id"), catalog).read(far_call)
    assert by_id is not None and unpack_ids(by_id.output_ids).tolist() == [7]
    assert fetched("by-id") == sizes[Path(far).name], "its id says when it was made"
    assert StoredCalls(machine("by-id"), catalog).read(f"call_{5_000:012x}{1:020x}") is None
    assert fetched("by-id") == sum(sizes.values()), "it might have been anywhere"
    again = StoredCalls(machine("retried"), catalog).first_tries(by_id.dialect, by_id.request, 300_000_000, None)
    assert [record.call_id for record in again] == [far_call]
    assert fetched("retried") == sizes[Path(far).name]
    assert load_calls(machine("c"), ["nobody"]) == {"nobody": []}
    assert fetched("c") == 0
    assert len(places(machine("d"))) == 4  # a question may be about any of them
    assert fetched("d") == sum(sizes.values())


def test_a_compaction_notes_the_sessions_of_files_of_an_earlier_weir(
    machine: Machine, catalog: Catalog, recording: Callable[[str, str], Recording], make_call: MakeCall
) -> None:
    writer = recording("a", "writer-a")
    for call in (make_call("c1", [1], [2]), make_call("d1", [1], [2], session_id="far", group_id="f")):
        writer.record(call)
        compact(machine("a"), seal_open=True)
    writer.close()
    with catalog.writing().begin() as connection:
        noted = connection.execute(sa.select(t.file_sessions)).fetchall()
        connection.execute(t.file_sessions.delete())

    def files_fetched_by(name: str) -> int:
        assert [call.call_id for call in load_calls(machine(name), ["s"])["s"]] == ["c1"]
        return len(list(machine(name).data_dir.glob("*.parquet")))

    assert files_fetched_by("b") == 2
    compact(machine("c"))
    assert files_fetched_by("d") == 1
    with catalog.reading().begin() as connection:
        assert set(connection.execute(sa.select(t.file_sessions)).fetchall()) == set(noted)
