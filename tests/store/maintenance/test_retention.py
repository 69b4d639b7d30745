"""Retention: old groups leave whole, needed ones stay, and clocks that jump make nothing old."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support_clock import DAY_S, HOUR_S, Clock
from support_stores import stored_names
from typer.testing import CliRunner

from weir.scripts.cli.commands.transfer import export
from weir.scripts.cli.main import app
from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import ROUNDS, take_lease
from weir.store.catalog.ready_groups import ready_groups
from weir.store.catalog.retention import BEING_CHOSEN, CHANGED, CLAIMABLE, IN_LATE_ROUND, IN_OPEN_ROUND, PINNED
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig
from weir.store.disk import SYSTEM_DISK
from weir.store.errors import CompactionRunning
from weir.store.maintenance.compact import compact
from weir.store.maintenance.garbage import delete_leftovers
from weir.store.maintenance.retention import planned_retirement, retire_groups
from weir.store.maintenance.upkeep import collect_garbage, planned_garbage
from weir.store.maintenance.verify import verify
from weir.store.reader import connect, load_calls

YEAR_S = 365 * DAY_S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def kept(config: StoreConfig, request: pytest.FixtureRequest) -> StoreConfig:
    """Settings: groups leave after ten days, unclaimed ones after twenty, except those of the latest round."""
    on_postgresql = getattr(request, "param", "sqlite") == "postgresql"
    url = request.getfixturevalue("postgres_url") if on_postgresql else None
    settings = {"retention_days": 10.0, "retention_unclaimed_days": 20.0, "retention_rounds": 1}
    return config.model_copy(update={**settings, "catalog_url": url})


@pytest.fixture
def group(kept: StoreConfig, record: Any, make_call: Any) -> Callable[..., None]:
    """Records a group of one session with two turns, compacted; registers it unless `registered` is False."""

    def build(name: str, registered: bool = True) -> None:
        names = {"session_id": f"session of {name}", "group_id": name}
        first = make_call(f"{name}-0", [1, 2, 3], [4], at=1_000_000, digest=f"{name}0".encode(), **names)
        then = make_call(f"{name}-1", [1, 2, 3, 4, 5], [6], at=2_000_000, digest=f"{name}1".encode(), **names)
        record([first, then], writer=f"writer of {name}")
        if registered:
            catalog = Catalog.open(kept)
            session = names["session_id"]
            catalog.register_session(session, name, task=None, group_size=1, metadata={}, key_hash=None)
            catalog.add_rewards(
                [RewardRow(session_id=session, call_id=None, name="r", value=1.0, source="t", idempotency_key="k")]
            )
            catalog.finish_session(session, status="done", info={})
            catalog.close()
        compact(kept)

    return build


@pytest.fixture
def take_rounds(kept: StoreConfig) -> Callable[..., None]:
    """Claim and commit rounds of the given groups in order; the last may stay open."""

    def take(*groups: list[str], leave_open: bool = False) -> None:
        catalog = Catalog.open(kept)
        lease = take_lease(catalog, ROUNDS, "test", 1)
        for number, names in enumerate(groups, 1):
            catalog.claim_groups(number, names, {"groups": names}, lease)
            if number < len(groups) or not leave_open:
                catalog.commit_round(number, number, {"loss": 1.0}, lease)
        catalog.close()

    return take


def looked_after(config: StoreConfig, clock: Clock, days: float) -> None:
    """Let `days` days pass, with one maintenance run a day."""
    while days > 0:
        clock.move(min(days, 1) * DAY_S)
        compact(config)
        days -= 1


def groups_of(config: StoreConfig) -> set[str]:
    with connect(config) as db:
        return {name for (name,) in db.execute("SELECT DISTINCT group_id FROM calls").fetchall()}


def count(config: StoreConfig, table: sa.Table) -> int:
    catalog = Catalog.open(config)
    with catalog.reading().begin() as connection:
        found = connection.scalar(sa.select(sa.func.count()).select_from(table))
    catalog.close()
    return int(found or 0)


@pytest.mark.parametrize("kept", ["postgresql"], indirect=True)
def test_groups_leave_a_store_with_postgresql_too(kept: StoreConfig, group: Any, take_rounds: Any) -> None:
    for name in ("early", "late", "unregistered"):
        group(name, registered=name != "unregistered")
    take_rounds(["early"], ["late"])
    catalog = Catalog.open(kept)
    with catalog.writing().begin() as connection:
        connection.execute(t.store_age.update().values(age_us=int(11 * DAY_S * 1e6)))
        connection.execute(t.sessions.update().values(created_us=1, finished_us=2))
    assert planned_retirement(catalog, kept).groups == 2
    done = retire_groups(catalog, kept, SYSTEM_DISK)
    catalog.close()
    assert (done.groups, done.calls, done.needed) == (2, 4, {IN_LATE_ROUND: 1})
    assert groups_of(kept) == {"late"}
    assert [count(kept, table) for table in (t.sessions, t.rewards, t.call_ends)] == [1, 1, 2]


def test_groups_leave_whole_once_rounds_have_consumed_them_and_they_are_old(
    kept: StoreConfig, clock: Clock, group: Any, take_rounds: Any
) -> None:
    for name in ("early", "late", "waits", "unregistered"):
        group(name, registered=name != "unregistered")
    take_rounds(["early"], ["late"])
    looked_after(kept, clock, 9)
    assert groups_of(kept) == {"early", "late", "waits", "unregistered"}
    looked_after(kept, clock, 2)
    assert groups_of(kept) == {"late", "waits"}
    verdict = verify(kept)
    assert (verdict.is_sound, verdict.findings) == (True, [])
    looked_after(kept, clock, 10)
    assert groups_of(kept) == {"late"}, "the latest round can be repeated"
    assert [call.prompt_ids.tolist() for call in load_calls(kept, ["session of late"])["session of late"]] == [
        [1, 2, 3],
        [1, 2, 3, 4, 5],
    ]
    assert verify(kept).is_sound


def test_what_the_catalog_says_of_a_group_leaves_with_it_but_for_its_round(
    kept: StoreConfig, clock: Clock, group: Any, take_rounds: Any
) -> None:
    group("early"), group("late")
    take_rounds(["early"], ["late"])
    looked_after(kept, clock, 11)
    assert [count(kept, table) for table in (t.sessions, t.rewards, t.call_ends, t.file_groups)] == [1, 1, 2, 1]
    catalog = Catalog.open(kept)
    assert [row.group_ids for row in catalog.rounds()] == [["early"], ["late"]]
    assert list(ready_groups(catalog)) == []
    catalog.close()
    with connect(kept) as db:
        assert db.sql("SELECT group_id, num_sessions FROM groups ORDER BY 1").fetchall() == [("early", 0), ("late", 1)]
        assert db.sql("SELECT count(*) FROM rewards").fetchall() == [(1,)]


def test_what_an_open_round_claimed_and_what_changed_stays_and_is_counted(
    kept: StoreConfig, clock: Clock, group: Any, take_rounds: Any
) -> None:
    for name in ("old", "claimed", "late", "changed", "free"):
        group(name)
    take_rounds(["old"], ["late"], ["claimed"], leave_open=True)
    for _ in range(21):
        clock.move(DAY_S)
        catalog = Catalog.open(kept)
        retire_groups(catalog, kept.model_copy(update={"retention_unclaimed_days": None}), SYSTEM_DISK)
        catalog.close()
    catalog = Catalog.open(kept)
    catalog.register_session("new", "changed", task=None, group_size=None, metadata={}, key_hash=None)
    forbidden = planned_retirement(catalog, kept.model_copy(update={"retention_unclaimed_days": None}))
    assert forbidden.needed == {IN_OPEN_ROUND: 1, IN_LATE_ROUND: 1, CHANGED: 1, CLAIMABLE: 1}
    assert planned_retirement(catalog, kept).groups == 1
    catalog.close()
    compact(kept)
    assert groups_of(kept) == {"claimed", "late", "changed"}


def test_while_a_round_chooses_nothing_that_it_may_claim_leaves(kept: StoreConfig, clock: Clock, group: Any) -> None:
    group("free")
    looked_after(kept, clock, 19)
    clock.move(25 * HOUR_S)
    catalog = Catalog.open(kept)
    lease = take_lease(catalog, ROUNDS, "a trainer", 3 * DAY_S)
    clock.move(25 * HOUR_S)
    compact(kept)
    assert planned_retirement(catalog, kept).needed == {BEING_CHOSEN: 1}
    catalog.claim_groups(1, ["free"], {}, lease)
    assert groups_of(kept) == {"free"}
    catalog.close()


def test_a_group_that_is_claimed_while_it_is_taken_out_stays(
    kept: StoreConfig, clock: Clock, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weir.store.maintenance import retention

    group("free")
    looked_after(kept, clock, 19.5)
    clock.move(DAY_S)
    catalog = Catalog.open(kept)
    write = retention.publish

    def claim_first(*given: Any) -> None:
        catalog.claim_groups(1, ["free"], {}, take_lease(catalog, ROUNDS, "a trainer", 60))
        write(*given)

    monkeypatch.setattr(retention, "publish", claim_first)
    with pytest.raises(CompactionRunning, match=r"group free was to leave.*claimed by the open round"):
        retire_groups(catalog, kept, SYSTEM_DISK)
    catalog.close()
    assert groups_of(kept) == {"free"}


def test_a_reader_keeps_what_it_began_with(kept: StoreConfig, clock: Clock, group: Any) -> None:
    group("old", registered=False), group("other")
    question = "SELECT group_id, count(*), sum(num_output_tokens) FROM calls GROUP BY ALL ORDER BY 1"
    looked_after(kept, clock, 9.5)
    with connect(kept) as db:
        before = db.sql(question).fetchall()
        looked_after(kept, clock, 0.5)
        assert groups_of(kept) == {"other"}
        assert db.sql(question).fetchall() == before


def test_files_of_old_groups_alone_leave_and_others_are_written_anew(
    kept: StoreConfig, clock: Clock, group: Any, record: Any, make_call: Any
) -> None:
    group("alone", registered=False)
    mixed = [make_call(f"{name}-0", [1], [2], group_id=name, session_id=name) for name in ("with", "stays")]
    record(mixed, writer="mixed")
    catalog = Catalog.open(kept)
    catalog.register_session("stays", "stays", task=None, group_size=1, metadata={}, key_hash=None)
    compact(kept)
    for _ in range(11):
        clock.move(DAY_S)
        done = retire_groups(catalog, kept, SYSTEM_DISK)
    catalog.close()
    assert (done.groups, done.calls, done.files, done.rewritten, done.needed) == (0, 0, 0, 0, {CLAIMABLE: 1})
    assert stored_names(kept) == ["stays-0"]
    collect_garbage(kept)
    assert len(list(kept.data_dir.iterdir())) == 1


def test_by_size_the_oldest_that_nothing_needs_leave(kept: StoreConfig, clock: Clock, group: Any) -> None:
    for name in ("a", "b", "c", "d"):
        group(name, registered=name == "a")
        clock.move(2 * HOUR_S)
        compact(kept)
    total = sum(path.stat().st_size for path in kept.data_dir.iterdir())
    limited = kept.model_copy(update={"retention_days": None, "retention_bytes": int(total * 0.75)})
    done = compact(limited).retirement
    assert (done.groups, done.calls) == (2, 4)
    assert groups_of(kept) == {"a", "d"}
    assert compact(limited).retirement.groups == 0


@pytest.mark.parametrize("jump_s", [YEAR_S, 50 * YEAR_S, -YEAR_S, 5 * HOUR_S, -5 * HOUR_S])
def test_a_clock_that_jumps_makes_nothing_old(kept: StoreConfig, clock: Clock, group: Any, jump_s: float) -> None:
    group("one", registered=False)
    looked_after(kept, clock, 2)
    clock.move(jump_s)
    group("two", registered=False)
    looked_after(kept, clock, 2)
    clock.move(-jump_s)
    looked_after(kept, clock, 2)
    assert groups_of(kept) == {"one", "two"}
    looked_after(kept, clock, 9)
    assert groups_of(kept) == set(), "and it leaves all the same, in its time"


def test_what_nobody_looks_after_does_not_age(kept: StoreConfig, clock: Clock, group: Any) -> None:
    group("one", registered=False)
    clock.move(YEAR_S)
    compact(kept)
    assert groups_of(kept) == {"one"}


def test_calls_that_were_taken_out_are_not_taken_in_again(kept: StoreConfig, clock: Clock, group: Any) -> None:
    group("old", registered=False), group("stays")
    copies = {path.name: path.read_bytes() for path in kept.data_dir.iterdir()}
    looked_after(kept, clock, 11)
    for name, content in copies.items():  # as a machine has them that was away, or a crash leaves them
        (kept.data_dir / f"left-{name}").write_bytes(content)
    assert verify(kept, fix=True).repair is not None
    assert groups_of(kept) == {"stays"}
    for name, content in copies.items():
        (kept.data_dir / f"left-{name}").write_bytes(content)
    catalog = Catalog.open(kept)
    clock.move(DAY_S)
    assert delete_leftovers(catalog, kept, SYSTEM_DISK)[0] == 2
    catalog.close()


def test_a_group_of_many_row_groups_is_counted_once_when_its_file_is_written_anew(
    kept: StoreConfig, clock: Clock, record: Any, make_call: Any
) -> None:
    many = [make_call(f"m{i}", [i], [1], group_id="many", session_id="m") for i in range(2500)]
    for start in range(0, len(many), 500):
        record(many[start : start + 500])
    record([make_call("old", [1], [2], group_id="gone", session_id="o")], writer="other")
    catalog = Catalog.open(kept)
    catalog.register_session("m", "many", task=None, group_size=1, metadata={}, key_hash=None)
    catalog.close()
    compact(kept)
    looked_after(kept, clock, 11)
    assert len(stored_names(kept)) == 2500
    assert verify(kept).is_sound


def test_the_command_says_what_leaves_and_a_dry_run_changes_nothing(
    kept: StoreConfig, clock: Clock, group: Any, tmp_path: Path
) -> None:
    group("old", registered=False), group("waits")
    given = kept.model_dump(mode="json", exclude_none=True, exclude={"local_folder"})
    file = tmp_path / "weir.toml"
    file.write_text("[store]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))

    def weir(*words: str) -> str:
        return CliRunner().invoke(app, ["store", *words, "--config", str(file)]).output

    looked_after(kept, clock, 9.5)
    clock.move(DAY_S)
    said = ["1 groups with 2 calls left the store", "1 groups as old stay: a round may still claim it"]
    before = planned_garbage(kept)
    assert [line in weir("gc", "--dry-run").splitlines() for line in said] == [True, True]
    assert weir("gc", "--dry-run").startswith("nothing was changed")
    assert groups_of(kept) == {"old", "waits"} and planned_garbage(kept) == before
    assert [line in weir("gc").splitlines() for line in said] == [True, True]
    assert groups_of(kept) == {"waits"}


KILLED_EXPORT = """
import os, signal, sys
from pathlib import Path
from weir.scripts.cli.commands import transfer
transfer._writer = lambda form: lambda rows, path, provenance: (next(iter(rows)), os.kill(os.getpid(), signal.SIGKILL))
transfer.export(output=Path(sys.argv[2]), where="group_id = 'read'", root=sys.argv[1])
"""


def test_what_an_export_read_stays_after_kill_9_until_the_export_is_run_again(
    kept: StoreConfig, clock: Clock, group: Any, tmp_path: Path
) -> None:
    group("read", registered=False), group("other", registered=False)
    output = tmp_path / "out.jsonl"
    killed = subprocess.run([sys.executable, "-c", KILLED_EXPORT, str(kept.root), str(output)], check=False)
    assert killed.returncode == -signal.SIGKILL and not output.exists()
    looked_after(kept, clock, 12)
    assert groups_of(kept) == {"read"}
    catalog = Catalog.open(kept)
    assert planned_retirement(catalog, kept).needed == {PINNED: 1}
    catalog.close()
    export(output=output, where="group_id = 'read'", root=str(kept.root))
    assert len(output.read_bytes().splitlines()) == 2
    looked_after(kept, clock, 1)
    assert groups_of(kept) == set()
