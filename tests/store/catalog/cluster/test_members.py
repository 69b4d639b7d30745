"""Rows of members and phases: one controller writes, and what a killed one left open is ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import (
    CLUSTER,
    MemberRow,
    begin_phase,
    controlled_engines,
    members,
    phases,
    see,
    take_over,
)
from weir.store.catalog.leases import Lease, give_lease_back, take_lease
from weir.store.config import StoreConfig
from weir.store.errors import LeaseLost
from weir.store.reader import connect

ENGINE = MemberRow(
    name="a", url="http://a:1/", tags=["rollout", "train"], kind="cpu", memory_gb=2.0, train_priority=1.5, phase="none"
)


@pytest.fixture
def store(tmp_path: Path) -> StoreConfig:
    return StoreConfig(root=tmp_path)


@pytest.fixture
def catalog(store: StoreConfig) -> Iterator[Catalog]:
    opened = Catalog.open(store)
    yield opened
    opened.close()


def lease_of(catalog: Catalog, holder: str) -> Lease:
    return take_lease(catalog, CLUSTER, holder, 60)


def test_phases_follow_each_other_and_the_views_show_them(catalog: Catalog, store: StoreConfig) -> None:
    lease = lease_of(catalog, "one")
    take_over(catalog, [ENGINE], lease)
    begin_phase(catalog, "a", "rollout", "started", lease, began_us=1_000_000, weight_version=3)
    begin_phase(
        catalog, "a", "train", "sample_ready", lease, began_us=3_500_000, seconds={"generate": 2.0, "load": 0.5}
    )
    assert [(row.phase, row.began_us, row.ended_us) for row in phases(catalog)] == [
        ("rollout", 1_000_000, 3_500_000),
        ("train", 3_500_000, None),
    ]
    assert members(catalog)[0].phase == "train"
    with connect(store) as db:
        found = db.sql(
            "SELECT member, event, duration_s, seconds ->> 'generate' FROM phases ORDER BY began_at"
        ).fetchall()
        assert found == [("a", "started", 2.5, "2.0"), ("a", "sample_ready", None, None)]
        assert db.sql("SELECT name, phase, tags ->> 1 FROM members").fetchall() == [("a", "train", "train")]


def test_a_phase_that_a_killed_controller_left_ends_when_it_last_saw_the_member(catalog: Catalog) -> None:
    lease = lease_of(catalog, "one")
    take_over(catalog, [ENGINE], lease)
    begin_phase(catalog, "a", "rollout", "started", lease, began_us=1_000_000)
    see(catalog, ["a"], 9_000_000)
    take_over(catalog, [ENGINE], lease_of(catalog, "one"))
    assert [row.ended_us for row in phases(catalog)] == [9_000_000]


def test_a_controller_that_lost_its_lease_writes_nothing(catalog: Catalog) -> None:
    lease = lease_of(catalog, "one")
    take_over(catalog, [ENGINE], lease)
    give_lease_back(catalog, lease)
    lease_of(catalog, "two")
    with pytest.raises(LeaseLost):
        begin_phase(catalog, "a", "train", "started", lease, began_us=1)
    with pytest.raises(LeaseLost):
        take_over(catalog, [], lease)
    assert phases(catalog) == [] and len(members(catalog)) == 1


def test_engines_are_controlled_while_the_lease_lives(catalog: Catalog) -> None:
    assert controlled_engines(catalog) == set()
    lease = lease_of(catalog, "one")
    take_over(catalog, [ENGINE], lease)
    assert controlled_engines(catalog) == {"http://a:1"}
    give_lease_back(catalog, lease)
    assert controlled_engines(catalog) == set()
