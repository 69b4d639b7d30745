"""The catalog's write locks on PostgreSQL: writers of one area follow each other, those of others do not wait."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from weir.store.catalog.audit.actions import Asked, begin_action
from weir.store.catalog.budgets import Charge, charge_budgets
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import Area
from weir.store.catalog.garbage import release_snapshot, renew_snapshot
from weir.store.catalog.keys import add_access_key
from weir.store.catalog.proxies import seen_proxy
from weir.store.catalog.refusals import REST, Times, note_refusals
from weir.store.config import StoreConfig

ASKED = Asked(action_id="a", kind="reward", subject="s", given={}, note="", person="Ann", address="here")


@pytest.fixture
def catalog(postgres_url: str, tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog.open(StoreConfig(root=tmp_path, catalog_url=postgres_url))
    yield catalog
    catalog.close()


def free_areas(catalog: Catalog) -> set[Area]:
    """The areas that nobody writes now."""
    with catalog.reading().begin() as connection:
        free = {
            area: connection.scalar(sa.select(sa.func.pg_try_advisory_xact_lock_shared(int(area)))) for area in Area
        }
    return {area for area in Area if free[area]}


def test_a_writer_locks_the_areas_that_it_names_until_it_ends(catalog: Catalog) -> None:
    with catalog.writing().begin():
        assert free_areas(catalog) == set(Area) - {Area.RECORDS}
    with catalog.writing(Area.BUDGETS, Area.RECORDS).begin():
        assert free_areas(catalog) == set(Area) - {Area.RECORDS, Area.BUDGETS}
    assert free_areas(catalog) == set(Area)


def test_what_calls_and_heartbeats_write_does_not_wait_for_a_writer_of_records(catalog: Catalog) -> None:
    with catalog.writing().begin():  # a compaction or a round that takes its time
        (charged,) = charge_budgets(catalog, [Charge(session_id="s", calls=1)])
        assert charged.granted
        seen_proxy(catalog, "p", url="http://p", writer="w")
        note_refusals(catalog, {REST: Times(num_requests=1, first_us=1, last_us=1)})
        add_access_key(catalog, "k", "secret")
        assert begin_action(catalog, ASKED)
        assert not renew_snapshot(catalog, "none")
        release_snapshot(catalog, "none")
