"""The audit of what people did: written first, completed once, never changed."""

from __future__ import annotations

from dataclasses import replace

from weir.store.catalog.audit.actions import Asked, begin_action, end_action, find_action, latest_actions
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.reader import connect

ASKED = Asked(
    action_id="action_1",
    kind="reward",
    subject="session_a",
    given={"name": "human", "value": "1"},
    note='a "fine" one',
    person="Ann",
    address="127.0.0.1",
)


def test_an_action_is_begun_once_and_its_first_end_is_final(either_catalog: StoreConfig) -> None:
    catalog = Catalog.open(either_catalog)
    assert begin_action(catalog, ASKED)
    assert not begin_action(catalog, replace(ASKED, subject="another")), "the id is known"
    begun = find_action(catalog, "action_1")
    assert begun is not None and (begun.subject, begun.given, begun.outcome) == ("session_a", ASKED.given, None)
    end_action(catalog, "action_1", done=False, message="the disk is full")
    end_action(catalog, "action_1", done=True, message="done after all")
    ended = find_action(catalog, "action_1")
    assert ended is not None and (ended.outcome, ended.message) == ("failed", "the disk is full")
    assert ended.ended_us is not None and ended.ended_us >= ended.asked_us == begun.asked_us
    assert find_action(catalog, "action_2") is None
    catalog.close()


def test_the_latest_actions_come_first_and_sql_shows_them(config: StoreConfig) -> None:
    catalog = Catalog.open(config)
    for number in range(3):
        begin_action(catalog, replace(ASKED, action_id=f"action_{number}"))
    assert [one.action_id for one in latest_actions(catalog, 2)] == ["action_2", "action_1"]
    catalog.close()
    with connect(config) as connection:
        row = connection.execute("SELECT kind, note, given ->> 'name', outcome FROM actions LIMIT 1").fetchone()
    assert row == ("reward", ASKED.note, "human", None)
