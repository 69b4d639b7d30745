"""Damage of every kind is reported, repaired where possible, and nothing is destroyed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support_stores import frame_bytes

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.log.segment_format import header_bytes, list_segments
from weir.store.maintenance.compact import compact
from weir.store.maintenance.verify import verify
from weir.store.reader import load_calls
from weir.store.records.call_record import CallRecord, encode_record, unpack_ids


def conversation(make_call: Any, session: str, turns: int = 4) -> list[CallRecord]:
    rng = random.Random(session)
    calls = []
    prompt = [rng.randrange(50) for _ in range(300)]
    for turn in range(turns):
        output = [rng.randrange(50) for _ in range(9)]
        names = {"session_id": session, "group_id": f"group of {session}", "digest": f"{session}{turn}".encode()}
        calls.append(make_call(f"{session}-{turn}", prompt, output, at=1_000_000 * (turn + 1), **names))
        prompt = [*prompt, *output, turn]
    return calls


def stored(config: StoreConfig, sessions: str) -> dict[str, list[int]]:
    loaded = load_calls(config, list(sessions))
    return {call.call_id: call.prompt_ids.tolist() for calls in loaded.values() for call in calls}


def prompts(*conversations: list[CallRecord]) -> dict[str, list[int]]:
    return {call.call_id: unpack_ids(call.prompt_ids).tolist() for calls in conversations for call in calls}


def data_files(config: StoreConfig) -> list[Path]:
    return sorted(config.data_dir.iterdir(), key=lambda path: path.stat().st_mtime_ns)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    path.chmod(0o644)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.fixture
def kept(config: StoreConfig) -> StoreConfig:
    """Settings of a store that keeps compacted segments for a while."""
    return config.model_copy(update={"segment_grace_s": 300.0})


def test_a_sound_store_is_called_sound_before_and_after_compaction(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    record(conversation(make_call, "a"))
    assert (verify(config).is_sound, verify(config).calls, verify(config).findings) == (True, 4, [])
    compact(config)
    assert (verify(config).is_sound, verify(config).calls, verify(config).findings) == (True, 4, [])


def test_a_corrupt_segment_is_named_and_the_records_behind_the_bad_frame_are_salvaged(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    calls = conversation(make_call, "a", 5)
    record(calls)
    [segment] = list_segments(config.log_dir)
    bad = len(header_bytes(1)) + len(frame_bytes(encode_record(calls[0])))
    overwrite(segment.path, bad + 40, b"\xff\xff\xff")
    before = segment.path.read_bytes()
    verdict = verify(config)
    assert not verdict.is_sound
    assert [segment.segment_id in finding and "checksum" in finding for finding in verdict.findings] == [True]
    done = verify(config, fix=True).repair
    assert done is not None and done.salvaged == 3
    assert stored(config, "a") == prompts([calls[0], *calls[2:]])
    assert Path(done.quarantined[0]).read_bytes() == before
    assert verify(config).is_sound


def test_a_damaged_segment_is_set_aside_before_garbage_collection_takes_it(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    calls = conversation(make_call, "a", 3)
    record(calls)
    [segment] = list_segments(config.log_dir)
    overwrite(segment.path, len(header_bytes(1)) + 40, b"\xff\xff\xff")
    before = segment.path.read_bytes()
    compact(config)
    assert list_segments(config.log_dir) == []
    assert (config.folder / "set-aside" / segment.path.relative_to(config.folder)).read_bytes() == before


def test_a_file_that_is_gone_is_named_and_rebuilt_from_the_log(kept: StoreConfig, record: Any, make_call: Any) -> None:
    calls = conversation(make_call, "a")
    record(calls)
    compact(kept)
    [path] = data_files(kept)
    path.unlink()
    verdict = verify(kept)
    assert (verdict.is_sound, len(verdict.findings)) == (False, 1)
    assert path.name in verdict.findings[0] and "gone, with 4 calls" in verdict.findings[0]
    done = verify(kept, fix=True).repair
    assert done is not None and done.reopened == 1
    assert stored(kept, "a") == prompts(calls)
    assert verify(kept).is_sound


@pytest.mark.parametrize("damage", ["cut off", "a page overwritten"])
def test_a_damaged_file_is_named_set_aside_and_rebuilt_from_the_log(
    kept: StoreConfig, record: Any, make_call: Any, damage: str
) -> None:
    first, second = conversation(make_call, "a"), conversation(make_call, "b")
    record(first, writer="one")
    compact(kept)
    record(second, writer="two")
    compact(kept)
    path = data_files(kept)[1]
    if damage == "cut off":
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-200])
    else:
        overwrite(path, path.stat().st_size // 4, bytes(64))
    before = path.read_bytes()
    verdict = verify(kept)
    assert not verdict.is_sound and all(path.name in finding for finding in verdict.findings)
    done = verify(kept, fix=True).repair
    assert done is not None and done.reopened == 1
    assert [Path(name).read_bytes() for name in done.quarantined] == [before]
    assert stored(kept, "ab") == prompts(first, second)
    assert verify(kept).is_sound


def test_calls_that_no_log_holds_any_more_are_left_out_with_those_that_build_on_them(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    calls = conversation(make_call, "a")
    record(calls[:2], writer="one")
    compact(config)
    record([*calls[2:], *conversation(make_call, "b")], writer="two")
    compact(config)
    data_files(config)[0].unlink()
    verdict = verify(config)
    assert sum("is missing from the store" in finding for finding in verdict.findings) == 2
    done = verify(config, fix=True).repair
    assert done is not None and (done.left_out, len(done.quarantined)) == (4, 1)
    assert stored(config, "ab") == prompts(conversation(make_call, "b"))
    assert verify(config).is_sound


def test_files_that_the_catalog_misses_are_taken_in_once(config: StoreConfig, record: Any, make_call: Any) -> None:
    first, second = conversation(make_call, "a"), conversation(make_call, "b")
    record(first, writer="one")
    compact(config)
    record(second, writer="two")
    compact(config)
    catalog = Catalog.open(config)
    tables = (t.file_sources, t.call_ends, t.file_groups, t.file_sessions, t.files, t.segments, t.publications)
    with catalog.writing().begin() as connection:  # as a catalog that was restored from before
        for table in tables:
            connection.execute(table.delete())
    catalog.close()
    assert len(verify(config).findings) == 2
    done = verify(config, fix=True).repair
    assert done is not None and (done.adopted, done.left_out) == (8, 0)
    assert stored(config, "ab") == prompts(first, second)
    verdict = verify(config)
    assert (verdict.is_sound, verdict.calls) == (True, 8)
    catalog = Catalog.open(config)
    with catalog.reading().begin() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(t.call_ends)) == 8
    catalog.close()


def test_clocks_that_jump_are_named_and_damage_nothing(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [1], [2], finished_us=5), make_call("b", [1], [2], at=10**17)], writer="one")
    folder = config.log_dir / "two"
    folder.mkdir(parents=True)
    for number, created_us in ((1, 9_000_000), (2, 3_000_000)):
        (folder / f"{number:08d}.sealed.wal").write_bytes(header_bytes(created_us))
    verdict = verify(config)
    assert verdict.is_sound
    assert verdict.findings == [
        "clock, one/00000001: 1 calls ended before they began, such as a",
        "clock, one/00000001: 1 calls lie in the future, such as b",
        "clock, two/00000002: it was begun 6.0 s before two/00000001",
    ]
