"""Refused requests in the catalog: counted, bounded, and in SQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.refusals import Refusal, Times, note_refusals
from weir.store.config import StoreConfig
from weir.store.reader import connect

REFUSED = Refusal(
    session_id="s",
    key_name="ci",
    method="POST",
    route="/v1/chat/completions",
    status=400,
    code="unsupported_parameter",
    field="suffix",
    message="suffix is not supported.",
    body_digest="ab" * 16,
)


def once(at_us: int) -> Times:
    return Times(num_requests=1, first_us=at_us, last_us=at_us)


def test_equal_refusals_of_several_processes_are_one_row_that_counts(either_catalog: StoreConfig) -> None:
    other = replace(REFUSED, session_id="t")

    def note(number: int) -> None:
        catalog = Catalog.open(either_catalog)
        note_refusals(catalog, {REFUSED: Times(num_requests=5, first_us=number, last_us=number + 1), other: once(7)})
        catalog.close()

    with ThreadPoolExecutor(4) as processes:
        list(processes.map(note, range(1, 9)))
    with connect(either_catalog) as db:
        rows = db.sql('SELECT session_id, num_requests, epoch_us(first_at), epoch_us(last_at), "key" FROM refusals')
        assert sorted(rows.fetchall()) == [("s", 40, 1, 9, "ci"), ("t", 8, 7, 7, "ci")]


def test_the_oldest_of_many_different_refusals_are_counted_together(either_catalog: StoreConfig) -> None:
    catalog = Catalog.open(either_catalog)
    for start in range(0, 40, 10):
        refused = {replace(REFUSED, body_digest=f"{n:032x}"): once(n) for n in range(start, start + 10)}
        note_refusals(catalog, refused, kept=15)
    catalog.close()
    with connect(either_catalog) as db:
        assert db.sql("SELECT sum(num_requests), count(*), count(DISTINCT body_digest) FROM refusals").fetchall() == [
            (40, 16, 15)
        ]
        rest = "SELECT num_requests, epoch_us(first_at), epoch_us(last_at) FROM refusals WHERE code = 'left_out'"
        assert db.sql(rest).fetchall() == [(25, 0, 24)]
        assert db.sql("SELECT min(epoch_us(first_at)) FROM refusals WHERE code <> 'left_out'").fetchall() == [(25,)]


def test_a_session_has_its_number_of_refused_requests(config: StoreConfig) -> None:
    catalog = Catalog.open(config)
    catalog.register_session("s", "g", task=None, group_size=None, metadata={}, key_hash=None)
    catalog.register_session("quiet", "g", task=None, group_size=None, metadata={}, key_hash=None)
    note_refusals(catalog, {REFUSED: Times(num_requests=3, first_us=1, last_us=2)})
    note_refusals(catalog, {replace(REFUSED, message="other"): once(3), replace(REFUSED, session_id=None): once(4)})
    catalog.close()
    with connect(config) as db:
        rows = db.sql("SELECT session_id, num_refused FROM sessions").fetchall()
    assert sorted(rows) == [("quiet", 0), ("s", 4)]
