"""The catalog: idempotent writes, exclusive claims, and a schema that equals what the migrations create."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from support_processes import PROCESSES, started
from support_store_processes import claim

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog, RewardRow
from weir.store.catalog.leases import ROUNDS, Lease, take_lease
from weir.store.catalog.ready_groups import PAGE, count_ready, ready_groups
from weir.store.catalog.rewards import evaluations_of
from weir.store.catalog.rows import EvaluationRow, GroupRow
from weir.store.catalog.schema import metadata
from weir.store.config import StoreConfig
from weir.store.errors import (
    RewardConflict,
    RoundConflict,
    SchemaTooNew,
    SessionConflict,
    SessionUnknown,
    StoreUnavailable,
    VersionConflict,
    VersionUnknown,
)


@pytest.fixture
def config(either_catalog: StoreConfig) -> StoreConfig:
    return either_catalog


@pytest.fixture
def lease(catalog: Catalog) -> Lease:
    return take_lease(catalog, ROUNDS, "test", 60)


@pytest.fixture
def catalog(config: StoreConfig) -> Iterator[Catalog]:
    opened = Catalog.open(config)
    yield opened
    opened.close()


def register(catalog: Catalog, session_id: str, group_id: str = "g", **changes: Any) -> None:
    given: dict[str, Any] = {"task": None, "group_size": None, "metadata": {}, "key_hash": None}
    catalog.register_session(session_id, group_id, **{**given, **changes})


def finished_group(catalog: Catalog, group_id: str, size: int = 2, task: dict[str, Any] | None = None) -> None:
    for i in range(size):
        register(catalog, f"{group_id}-{i}", group_id, group_size=size, task=task)
        catalog.finish_session(f"{group_id}-{i}", status="done", info={})


def evaluation(call_id: str, content_hash: str, raw_reward: float, created_us: int) -> EvaluationRow:
    return EvaluationRow(
        call_id=call_id,
        session_id="s",
        group_id="g",
        round_id=None,
        content_hash=content_hash,
        compiled=True,
        correct=raw_reward == 1.0,
        fault=None,
        raw_reward=raw_reward,
        result={"trials": 5},
        created_us=created_us,
    )


def test_the_migrations_make_exactly_the_tables_that_the_code_uses(catalog: Catalog) -> None:
    with catalog.reading().connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_catalog_of_a_later_weir_is_refused(config: StoreConfig, catalog: Catalog) -> None:
    with catalog.writing().begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0099_later'"))
    with pytest.raises(SchemaTooNew, match="0099_later"):
        Catalog.open(config)


def test_a_folder_that_cannot_be_made_is_reported_in_one_line(config: StoreConfig) -> None:
    config.root.write_text("a file in the way")
    with pytest.raises(StoreUnavailable, match=r"cannot open the catalog .*: .*File exists"):
        Catalog.open(config)


def test_registering_again_with_the_same_values_changes_nothing(catalog: Catalog) -> None:
    given = {"task": {"task_id": "add"}, "group_size": 4, "metadata": {"agent": "x"}, "key_hash": "k1"}
    register(catalog, "s1", **given)
    before = catalog.find_session("s1")
    register(catalog, "s1", **given)
    assert catalog.find_session("s1") == before == catalog.find_session_by_key("k1")
    assert before is not None
    assert (before.group_id, before.metadata, before.status) == ("g", {"agent": "x"}, None)
    assert catalog.find_session("other") is None


@pytest.mark.parametrize("change", [{"metadata": {"a": 1}}, {"key_hash": "k"}, {"group_id": "h"}, {"group_size": 9}])
def test_registering_again_with_other_values_is_refused(catalog: Catalog, change: dict[str, Any]) -> None:
    register(catalog, "s1", group_size=2)
    with pytest.raises(SessionConflict, match=r"s1|group g"):
        register(catalog, "s1", **change)


def test_a_key_belongs_to_one_session(catalog: Catalog) -> None:
    register(catalog, "s1", key_hash="k")
    with pytest.raises(SessionConflict, match="s2"):
        register(catalog, "s2", key_hash="k")


def test_a_session_may_bring_the_task_that_its_group_lacked(catalog: Catalog) -> None:
    register(catalog, "g-early", "g")
    finished_group(catalog, "g", size=1, task={"task_id": "add"})
    assert ready(catalog)[0].task == {"task_id": "add"}


def test_a_session_finishes_once(catalog: Catalog) -> None:
    register(catalog, "s1")
    catalog.finish_session("s1", status="failed", info={"why": "crash"})
    first = catalog.find_session("s1")
    catalog.finish_session("s1", status="failed", info={"why": "another"})
    assert catalog.find_session("s1") == first
    assert first is not None and first.info == {"why": "crash"}
    with pytest.raises(SessionConflict, match="ended as failed"):
        catalog.finish_session("s1", status="done", info={})
    with pytest.raises(SessionUnknown):
        catalog.finish_session("nobody", status="done", info={})


def test_a_reward_is_kept_once_per_idempotency_key(catalog: Catalog) -> None:
    register(catalog, "s1")
    reward: dict[str, Any] = {"call_id": None, "name": "judge", "source": "test", "idempotency_key": "k"}
    assert catalog.add_rewards([RewardRow(session_id="s1", value=0.5, **reward)]) == [True]
    assert catalog.add_rewards([RewardRow(session_id="s1", value=0.5, **reward)]) == [False]
    with pytest.raises(RewardConflict, match=r"0\.5"):
        catalog.add_rewards([RewardRow(session_id="s1", value=0.7, **reward)])
    with pytest.raises(SessionUnknown):
        catalog.add_rewards([RewardRow(session_id="nobody", value=0.5, **reward)])


def test_evaluations_are_kept_once_and_given_by_what_was_judged(catalog: Catalog) -> None:
    first, later = evaluation("c1", "h1", 0.1, 10), evaluation("c1", "h2", 1.0, 20)
    catalog.add_evaluations([first, later])
    catalog.add_evaluations([evaluation("c1", "h1", 0.9, 99)])
    assert evaluations_of(catalog, {"c1": "h1", "c2": "h1"}) == {"c1": first}
    assert evaluations_of(catalog, {"c1": "h2"}) == {"c1": later}
    assert evaluations_of(catalog, {"c1": "h3"}) == {}
    catalog.add_evaluations([])
    assert evaluations_of(catalog, {}) == {}


def ready(catalog: Catalog, **policy: float) -> list[GroupRow]:
    return list(ready_groups(catalog, **policy))


def age_sessions(catalog: Catalog, seconds: float) -> None:
    """Move every registration and end into the past."""
    back = int(seconds * 1e6)
    with catalog.writing().begin() as connection:
        moved = {t.sessions.c.created_us: t.sessions.c.created_us - back}
        moved[t.sessions.c.finished_us] = t.sessions.c.finished_us - back
        connection.execute(t.sessions.update().values(moved))


def test_a_group_is_ready_when_all_its_sessions_are_finished_and_until_a_round_claims_it(
    catalog: Catalog, lease: Lease
) -> None:
    finished_group(catalog, "g1", task={"family": "rows"})
    finished_group(catalog, "g2", task={"family": "binary"})
    register(catalog, "g3-0", "g3", group_size=1)
    assert [(g.group_id, g.session_ids) for g in ready(catalog)] == [
        ("g1", ["g1-0", "g1-1"]),
        ("g2", ["g2-0", "g2-1"]),
    ]
    catalog.claim_groups(1, ["g2"], {"seed": 3}, lease)
    assert [g.group_id for g in ready(catalog)] == ["g1"]


def test_a_group_that_waited_long_enough_is_ready_with_the_sessions_that_finished(catalog: Catalog) -> None:
    for group_id, done in (("half", 2), ("quarter", 1)):
        for i in range(4):
            register(catalog, f"{group_id}-{i}", group_id, group_size=4)
        for i in range(done):
            catalog.finish_session(f"{group_id}-{i}", status="done", info={})
    register(catalog, "seen-0", "seen")  # of a group without a size
    catalog.finish_session("seen-0", status="done", info={})
    assert ready(catalog) == []
    assert ready(catalog, timeout_s=60, min_size_ratio=0.5) == []
    age_sessions(catalog, 61)
    assert [(g.group_id, g.session_ids) for g in ready(catalog, timeout_s=60, min_size_ratio=0.5)] == [
        ("half", ["half-0", "half-1"]),
        ("seen", ["seen-0"]),
    ]
    assert [g.group_id for g in ready(catalog, timeout_s=60, min_size_ratio=0.25)] == ["half", "quarter", "seen"]
    register(catalog, "half-4", "half")  # a session that starts now keeps the group waiting
    assert [g.group_id for g in ready(catalog, timeout_s=60, min_size_ratio=0.25)] == ["quarter", "seen"]


def test_groups_of_held_out_tasks_are_never_ready(catalog: Catalog) -> None:
    finished_group(catalog, "train", task={"task_id": "a", "split": "train"})
    finished_group(catalog, "plain", task={"task_id": "b"})
    finished_group(catalog, "heldout", task={"task_id": "c", "split": "heldout"})
    assert {group.group_id for group in ready(catalog)} == {"train", "plain"}
    assert count_ready(catalog) == 2
    age_sessions(catalog, 61)
    assert count_ready(catalog, timeout_s=60) == 2


def test_ready_groups_beyond_a_page_come_in_order(catalog: Catalog) -> None:
    names = [f"g{i:03d}" for i in range(PAGE + 3)]
    for name in names:
        finished_group(catalog, name, size=1)
    with catalog.writing().begin() as connection:
        connection.execute(t.groups.update().values(created_us=7))  # equal times: the id decides
    assert [g.group_id for g in ready(catalog)] == names


def test_a_round_is_claimed_once_and_committed_once(catalog: Catalog, lease: Lease) -> None:
    for name in ("b", "a", "c"):
        finished_group(catalog, name)
    catalog.claim_groups(1, ["b", "a"], {"seed": 3}, lease)
    claimed = catalog.open_round()
    assert claimed is not None
    assert (claimed.round_id, claimed.group_ids, claimed.manifest) == (1, ["b", "a"], {"seed": 3})
    with pytest.raises(RoundConflict):
        catalog.claim_groups(1, ["b", "a"], {"seed": 3}, lease)
    with pytest.raises(RoundConflict):
        catalog.claim_groups(2, ["c"], {}, lease)  # one open round at a time
    catalog.commit_round(1, 7, {"loss": 0.5}, lease)
    (done,) = catalog.rounds()
    assert (done.weight_version, done.metrics, catalog.open_round()) == (7, {"loss": 0.5}, None)
    catalog.commit_round(1, 7, {"loss": 0.5, "seconds": 2.0}, lease)
    assert catalog.rounds() == [replace(done, metrics={"loss": 0.5, "seconds": 2.0})], "told again: the metrics only"
    with pytest.raises(RoundConflict, match="version 7"):
        catalog.commit_round(1, 8, {}, lease)
    with pytest.raises(RoundConflict, match="round 9"):
        catalog.commit_round(9, 8, {}, lease)


def test_a_claim_takes_all_its_groups_or_none(catalog: Catalog, lease: Lease) -> None:
    finished_group(catalog, "a")
    finished_group(catalog, "b")
    catalog.claim_groups(1, ["a"], {}, lease)
    catalog.commit_round(1, 1, {}, lease)
    with pytest.raises(RoundConflict):
        catalog.claim_groups(2, ["b", "a"], {}, lease)
    assert [g.group_id for g in ready(catalog)] == ["b"]
    assert catalog.open_round() is None


def test_of_processes_that_claim_the_same_groups_at_once_one_wins(
    catalog: Catalog, config: StoreConfig, lease: Lease
) -> None:
    finished_group(catalog, "a")
    finished_group(catalog, "b")
    start, results = PROCESSES.Barrier(3), PROCESSES.Queue()
    processes = [started(claim, config, lease, i, start, results) for i in (1, 2, 3)]
    winners = [winner for winner in (results.get(timeout=120) for _ in processes) if winner is not None]
    for process in processes:
        process.join()
    assert [r.round_id for r in catalog.rounds()] == winners
    assert len(winners) == 1


def test_many_threads_write_one_catalog_that_they_all_open_first(config: StoreConfig) -> None:
    def write(i: int) -> None:
        catalog = Catalog.open(config)
        for j in range(10):
            register(catalog, f"s{i}-{j}", f"g{j}")
        catalog.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    catalog = Catalog.open(config)
    assert all(catalog.find_session(f"s{i}-{j}") is not None for i in range(8) for j in range(10))
    catalog.close()


def test_a_version_names_one_set_of_weights(catalog: Catalog) -> None:
    first: dict[str, Any] = {"path": "versions/1", "parent": None, "round_id": None, "manifest_sha256": "aa"}
    catalog.add_version(1, **first)
    catalog.add_version(1, **first)
    with pytest.raises(VersionConflict, match="version 1"):
        catalog.add_version(1, **{**first, "manifest_sha256": "bb"})
    catalog.set_published(1, 123, ["http://e1"])
    [row] = catalog.versions()
    assert (row.version, row.published_us, row.engines) == (1, 123, ["http://e1"])
    with pytest.raises(VersionUnknown):
        catalog.set_published(2, 1, [])


def test_several_rewards_are_kept_all_or_none(config: StoreConfig) -> None:
    catalog = Catalog.open(config)
    catalog.register_session("s1", "g", task=None, group_size=None, metadata={}, key_hash=None)
    more = {"call_id": None, "name": "score", "source": "test"}
    first = RewardRow(session_id="s1", value=0.5, idempotency_key="1", **more)
    second = RewardRow(session_id="s1", value=0.6, idempotency_key="2", **more)
    with pytest.raises(SessionUnknown):
        catalog.add_rewards([first, RewardRow(session_id="nobody", value=0.5, idempotency_key="1", **more)])
    assert catalog.add_rewards([first, second]) == [True, True], "the refused batch left nothing behind"
    assert catalog.add_rewards([first, second]) == [False, False]
    catalog.close()


def test_a_reader_sees_one_state_while_others_write(catalog: Catalog) -> None:
    count = sa.select(sa.func.count()).select_from(t.sessions)
    with catalog.reading().begin() as connection:
        before = connection.scalar(count)
        register(catalog, "s1")
        assert connection.scalar(count) == before == 0
    with catalog.reading().begin() as connection:
        assert connection.scalar(count) == 1


def test_a_writer_decides_on_what_the_writer_before_it_left(config: StoreConfig, catalog: Catalog) -> None:
    register(catalog, "s1", group_size=0)

    def add_ten() -> None:
        mine = Catalog.open(config)
        for _ in range(10):
            with mine.writing().begin() as connection:
                size = connection.scalar(sa.select(t.groups.c.group_size))
                connection.execute(t.groups.update().values(group_size=size + 1))
        mine.close()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(add_ten) for _ in range(4)]:
            done.result()
    with catalog.reading().begin() as connection:
        assert connection.scalar(sa.select(t.groups.c.group_size)) == 40


def test_a_database_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql://weir:secret@/none?host={tmp_path}"
    with pytest.raises(StoreUnavailable, match=rf"{tmp_path}/.*: No such file.*catalog_url") as refused:
        Catalog.open(StoreConfig(root=tmp_path, catalog_url=url))
    assert "secret" not in str(refused.value)


def test_a_catalog_is_sqlite_or_postgresql(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="catalog_url"):
        StoreConfig(root=tmp_path, catalog_url="mysql://somewhere/weir")
