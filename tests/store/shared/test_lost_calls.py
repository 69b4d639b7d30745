"""Lost calls come from the logs of dead writers into the catalog."""

from __future__ import annotations

from typing import Any

import pytest

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import ROUNDS, take_lease
from weir.store.catalog.lost_calls import LostCall, note_lost_calls, waiting_for_lost_calls
from weir.store.catalog.ready_groups import count_ready, ready_groups
from weir.store.catalog.retention import remove_groups
from weir.store.config import StoreConfig
from weir.store.errors import RoundConflict
from weir.store.log.intents import FILE
from weir.store.log.writer import LogWriter
from weir.store.maintenance.compact import compact
from weir.store.reader import connect
from weir.store.shared.lost_calls import collect_lost_calls


def lost_calls(config: StoreConfig) -> list[tuple[Any, ...]]:
    with connect(config) as db:
        return db.sql("SELECT call_id, session_id, reason, writer FROM lost_calls ORDER BY 1").fetchall()


def writer_dies(log: LogWriter) -> None:
    """End a writer as kill -9 does for others: its lock is free, and its slots stay."""
    kept = (log.folder / FILE).read_bytes()
    log.close()
    (log.folder / FILE).write_bytes(kept)


def test_what_a_dead_writer_had_upstream_is_lost_but_for_what_it_recorded(
    either_catalog: StoreConfig, make_call: Any
) -> None:
    config = either_catalog
    log = LogWriter(config.folder, "proxy", config)
    for name in ("answered", "written", "lost"):
        slot = log.intents.begin(name, "s", "g", 5)
        if name != "lost":
            log.append(make_call(name, [1], [2])).result(120)
        if name == "answered":
            log.intents.end(slot)
    assert lost_calls(config) == [], "its process lives"
    writer_dies(log)
    for _ in range(2):
        assert lost_calls(config) == [("lost", "s", "process_ended", "proxy")]
    assert not (log.folder / FILE).exists()


@pytest.mark.parametrize("digest", [b"", b"0123456789abcdef"])
def test_a_record_that_was_compacted_before_anybody_looked_is_not_lost(
    config: StoreConfig, make_call: Any, digest: bytes
) -> None:
    log = LogWriter(config.folder, "proxy", config)
    log.intents.begin("written", "s", "g", 5)
    log.append(make_call("written", [1], [2], digest=digest)).result(120)
    writer_dies(log)
    kept = (log.folder / FILE).read_bytes()
    compact(config)
    assert not (log.folder / FILE).exists()
    if digest:
        (log.folder / FILE).write_bytes(kept)  # as if the process had died after that
    assert lost_calls(config) == []


def test_what_the_log_refused_is_lost_while_its_process_lives(config: StoreConfig) -> None:
    log = LogWriter(config.folder, "proxy", config)
    log.intents.unrecorded(log.intents.begin("refused", "s", "g", 5))
    log.intents.begin("upstream", "s", "g", 6)
    for _ in range(2):
        assert lost_calls(config) == [("refused", "s", "log_refused", "proxy")]
    writer_dies(log)
    assert [row[0] for row in lost_calls(config)] == ["refused", "upstream"]


def test_a_collector_that_is_killed_before_it_deletes_the_slots_changes_nothing(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogWriter(config.folder, "proxy", config)
    log.intents.begin("lost", "s", "g", 5)
    writer_dies(log)
    kept = (log.folder / FILE).read_bytes()
    catalog = Catalog.open(config)
    for _ in range(2):
        (log.folder / FILE).write_bytes(kept)
        assert collect_lost_calls(config, catalog) == 1
    catalog.close()
    assert len(lost_calls(config)) == 1


def test_a_reader_that_looks_does_not_keep_a_writer_from_its_folder(config: StoreConfig) -> None:
    for _ in range(3):
        log = LogWriter(config.folder, "proxy", config)
        log.intents.begin("call", "s", "g", 5)
        writer_dies(log)
        lost_calls(config)
    assert len(lost_calls(config)) == 1


def in_group(catalog: Catalog, group_id: str, *, size: int = 2) -> None:
    """Register and finish the sessions of a group."""
    for number in range(size):
        name = f"{group_id}{number}"
        catalog.register_session(name, group_id, task={"n": 1}, group_size=size, metadata={}, key_hash=None)
        catalog.finish_session(name, status="done", info={})


def lose(catalog: Catalog, session_id: str, group_id: str) -> None:
    names = {"call_id": f"of {session_id}", "session_id": session_id, "group_id": group_id}
    note_lost_calls(catalog, [LostCall(**names, started_us=1, writer="w", reason="process_ended")])


def test_a_group_with_a_lost_call_is_not_complete_and_in_time_its_other_sessions_are(
    either_catalog: StoreConfig,
) -> None:
    catalog = Catalog.open(either_catalog)
    for group_id in ("whole", "torn"):
        in_group(catalog, group_id)
    lose(catalog, "torn1", "torn")
    lose(catalog, "nobody", "torn")
    assert [row.group_id for row in ready_groups(catalog)] == ["whole"]
    assert (count_ready(catalog), waiting_for_lost_calls(catalog)) == (1, {"torn": 1})
    late = {row.group_id: row.session_ids for row in ready_groups(catalog, timeout_s=0, min_size_ratio=0.5)}
    assert late == {"whole": ["whole0", "whole1"], "torn": ["torn0"]}
    assert [row.group_id for row in ready_groups(catalog, timeout_s=0)] == ["whole"]
    catalog.close()
    with connect(either_catalog) as db:
        rows = db.sql("SELECT group_id, num_finished, finished, num_lost_calls FROM groups ORDER BY 1").fetchall()
        assert rows == [("torn", 2, False, 2), ("whole", 2, True, 0)]
        rows = db.sql("SELECT session_id, num_calls, num_lost_calls FROM sessions ORDER BY 1").fetchall()
        assert ("nobody", 0, 1) in rows and ("torn1", 0, 1) in rows and ("torn0", 0, 0) in rows


def test_a_round_does_not_claim_a_session_whose_call_was_lost_since_it_was_chosen(
    either_catalog: StoreConfig,
) -> None:
    catalog = Catalog.open(either_catalog)
    in_group(catalog, "g")
    [chosen] = ready_groups(catalog)
    lease = take_lease(catalog, ROUNDS, "test", 60)
    lose(catalog, "g1", "g")
    with pytest.raises(RoundConflict, match="call of g1 of its session g1 was lost since the group was chosen"):
        catalog.claim_groups(1, ["g"], {}, lease, session_ids=chosen.session_ids)
    assert catalog.open_round() is None
    catalog.claim_groups(1, ["g"], {}, lease, session_ids=["g0"])
    assert waiting_for_lost_calls(catalog) == {}
    catalog.close()


def test_the_lost_calls_of_a_group_leave_with_it(config: StoreConfig) -> None:
    catalog = Catalog.open(config)
    in_group(catalog, "g")
    lose(catalog, "g1", "g")
    with catalog.writing().begin() as connection:
        remove_groups(connection, ["g"], 1)
    catalog.close()
    assert lost_calls(config) == []
