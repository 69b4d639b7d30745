"""Leases: one holder at a time, growing tokens, and refused commits of holders that lost theirs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import ROUNDS, give_lease_back, held_lease, renew_lease, take_lease
from weir.store.config import StoreConfig
from weir.store.errors import LeaseHeld, LeaseLost


@pytest.fixture
def catalog(either_catalog: StoreConfig) -> Iterator[Catalog]:
    opened = Catalog.open(either_catalog)
    yield opened
    opened.close()


def test_a_lease_has_one_holder_until_it_is_given_back(catalog: Catalog) -> None:
    lease = take_lease(catalog, "work", "a", 60)
    with pytest.raises(LeaseHeld, match=r"a holds the lease 'work' for (59|60) s"):
        take_lease(catalog, "work", "b", 60)
    assert take_lease(catalog, "other work", "b", 60).token == 1
    give_lease_back(catalog, lease)
    assert take_lease(catalog, "work", "b", 60).token == 2


def test_a_lease_that_ran_out_goes_to_the_next_and_is_lost_to_the_first(catalog: Catalog) -> None:
    first = take_lease(catalog, "work", "a", 0)
    second = take_lease(catalog, "work", "b", 60)
    assert (first.token, second.token) == (1, 2)
    with pytest.raises(LeaseLost, match=r"a has lost the lease 'work' \(token 1\) to b with token 2"):
        renew_lease(catalog, first, 60)
    give_lease_back(catalog, first)
    with pytest.raises(LeaseHeld):
        take_lease(catalog, "work", "c", 60)


def test_a_lease_that_ran_out_and_that_nobody_took_is_renewed(catalog: Catalog) -> None:
    lease = take_lease(catalog, "work", "a", 0)
    renew_lease(catalog, lease, 60)
    with pytest.raises(LeaseHeld):
        take_lease(catalog, "work", "b", 60)


def test_of_many_that_take_a_lease_at_once_one_has_it(either_catalog: StoreConfig, catalog: Catalog) -> None:
    start = threading.Barrier(8)

    def take(i: int) -> bool:
        mine = Catalog.open(either_catalog)
        start.wait()
        try:
            take_lease(mine, "work", f"holder {i}", 60)
        except LeaseHeld:
            return False
        finally:
            mine.close()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(8))) == 1


def test_a_held_lease_is_renewed_while_its_block_runs_and_free_after_it(catalog: Catalog) -> None:
    def expires_us() -> int:
        with catalog.reading().begin() as connection:
            return int(connection.scalar(sa.select(t.leases.c.expires_us)) or 0)

    with held_lease(catalog, "work", "a", 3) as lease:
        first = expires_us()
        while expires_us() == first:
            time.sleep(0.05)
        assert expires_us() > first
    assert take_lease(catalog, "work", "b", 60).token == lease.token + 1


def test_the_commit_of_a_trainer_that_lost_its_lease_is_refused(catalog: Catalog) -> None:
    catalog.register_session("s", "g", task=None, group_size=1, metadata={}, key_hash=None)
    catalog.finish_session("s", status="done", info={})
    stale = take_lease(catalog, ROUNDS, "machine a", 0)
    catalog.claim_groups(1, ["g"], {}, stale)
    lease = take_lease(catalog, ROUNDS, "machine b", 60)
    with pytest.raises(LeaseLost):
        catalog.commit_round(1, 1, {"by": "a"}, stale)
    with pytest.raises(LeaseLost):
        catalog.claim_groups(2, [], {}, stale)
    assert [(row.state, row.weight_version) for row in catalog.rounds()] == [("claimed", None)]
    catalog.commit_round(1, 2, {"by": "b"}, lease)
    assert [(row.state, row.weight_version, row.metrics) for row in catalog.rounds()] == [("committed", 2, {"by": "b"})]
