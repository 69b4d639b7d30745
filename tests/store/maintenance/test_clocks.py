"""Clocks that jump by hours and years, in both directions: nothing is lost, and nothing needed is deleted early."""

from __future__ import annotations

from typing import Any

import pytest
from support_clock import DAY_S, HOUR_S, Clock
from support_stores import stored_names

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import COMPACTION, check_lease, take_lease
from weir.store.catalog.ready_groups import ready_groups
from weir.store.config import StoreConfig
from weir.store.errors import LeaseHeld, LeaseLost
from weir.store.log.writer import LogWriter
from weir.store.maintenance.compact import compact
from weir.store.maintenance.upkeep import collect_garbage
from weir.store.maintenance.verify import verify
from weir.store.reader import connect, load_calls

YEAR_S = 365 * DAY_S
JUMPS = pytest.mark.parametrize("jump_s", [5 * HOUR_S, -5 * HOUR_S, 30 * YEAR_S, -30 * YEAR_S])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@JUMPS
def test_what_is_recorded_across_a_jump_is_kept_in_order_and_compacted_once(
    config: StoreConfig, make_call: Any, clock: Clock, jump_s: float
) -> None:
    log = LogWriter(config.root, "proxy", config)
    prompt = [1]
    for turn in range(6):
        log.append(make_call(f"c{turn}", prompt, [turn], at=10**15 + turn)).result(120)
        prompt = [*prompt, turn, 7]
        clock.move(jump_s if turn % 2 else -jump_s)
        if turn == 3:
            compact(config, seal_open=True)
            clock.move(jump_s)
            collect_garbage(config)
    log.close()
    assert sorted(stored_names(config)) == [f"c{turn}" for turn in range(6)]
    compact(config)
    clock.move(-jump_s)
    collect_garbage(config)
    assert sorted(stored_names(config)) == [f"c{turn}" for turn in range(6)]
    with connect(config) as db:
        assert db.sql("SELECT count(*), max(depth) FROM calls").fetchall() == [(6, 5)]
    assert verify(config).is_sound


@JUMPS
def test_an_open_connection_reads_on_across_a_jump(
    config: StoreConfig, record: Any, make_call: Any, clock: Clock, jump_s: float
) -> None:
    for i in range(8):
        record([make_call(f"c{i}", [i], [1])], writer=f"w{i}")
        if i < 7:
            compact(config)
    with connect(config) as db:
        clock.move(jump_s)
        assert compact(config).files_merged == 8
        collect_garbage(config)
        assert db.sql("SELECT count(*) FROM calls").fetchall() == [(8,)]
    del db
    while len(list(config.data_dir.iterdir())) > 1:  # the connection's thread releases its pin
        collect_garbage(config)
    assert len(load_calls(config, ["s"])["s"]) == 8


def test_a_dead_reader_from_before_a_jump_back_holds_files_for_minutes_only(
    config: StoreConfig, record: Any, make_call: Any, clock: Clock
) -> None:
    from weir.store.catalog.garbage import pin_generation

    record([make_call("c0", [0], [1])], writer="w0")
    compact(config)
    catalog = Catalog.open(config)
    with catalog.writing().begin() as connection:
        pin_generation(connection, "a dead one", "gone:1")
    for i in range(1, 8):
        record([make_call(f"c{i}", [i], [1])], writer=f"w{i}")
        compact(config)
    clock.move(-YEAR_S)
    assert collect_garbage(config)[1].readers == ("gone:1",)
    clock.move(130)
    assert collect_garbage(config)[1].readers == ()
    assert len(list(config.data_dir.iterdir())) == 1
    catalog.close()


def test_a_lease_of_before_a_jump_back_ends_in_time_and_a_jump_ahead_lets_none_commit_twice(
    config: StoreConfig, clock: Clock
) -> None:
    catalog = Catalog.open(config)
    first = take_lease(catalog, COMPACTION, "first", 60)
    clock.move(-YEAR_S)
    with pytest.raises(LeaseHeld, match="for 600 s more"):
        take_lease(catalog, COMPACTION, "second", 60)
    clock.move(601)
    second = take_lease(catalog, COMPACTION, "second", 60)
    clock.move(YEAR_S)
    third = take_lease(catalog, COMPACTION, "third", 60)
    with catalog.writing().begin() as connection:
        check_lease(connection, third)
        for lost in (first, second):
            with pytest.raises(LeaseLost):
                check_lease(connection, lost)
    catalog.close()


@JUMPS
def test_a_group_that_finished_before_a_jump_is_ready_once(config: StoreConfig, clock: Clock, jump_s: float) -> None:
    catalog = Catalog.open(config)
    for name in ("before", "after"):
        catalog.register_session(name, name, task=None, group_size=1, metadata={}, key_hash=None)
        catalog.finish_session(name, status="done", info={})
        clock.move(jump_s)
    assert sorted(group.group_id for group in ready_groups(catalog, timeout_s=60)) == ["after", "before"]
    catalog.close()
