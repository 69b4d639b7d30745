"""Pins: what a consumer has not acknowledged stays, and who is killed takes its pin over."""

from __future__ import annotations

import pytest

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.pins import acknowledge, pin_groups, pinned, pins
from weir.store.catalog.retention import PINNED, refuse_needed
from weir.store.config import StoreConfig
from weir.store.errors import CompactionRunning, GroupsGone


def needed(catalog: Catalog, config: StoreConfig, group_id: str) -> bool:
    """Whether retention would be refused the group in the transaction in which it leaves."""
    try:
        with catalog.writing().begin() as connection:
            refuse_needed(connection, config, [group_id], catalog.now_us())
    except CompactionRunning as error:
        assert PINNED in str(error)
        return True
    return False


def test_a_group_is_needed_until_every_consumer_of_it_has_acknowledged(either_catalog: StoreConfig) -> None:
    catalog = Catalog.open(either_catalog)
    pin_groups(catalog, "one", {"a", "b"}, read_us=catalog.now_us())
    pin_groups(catalog, "two", {"b"}, read_us=catalog.now_us())
    assert [(pin.name, pin.num_groups) for pin in pins(catalog)] == [("one", 2), ("two", 1)]
    assert [needed(catalog, either_catalog, name) for name in "abc"] == [True, True, False]
    assert acknowledge(catalog, "one")
    assert [needed(catalog, either_catalog, name) for name in "abc"] == [False, True, False]
    assert acknowledge(catalog, "two") and not acknowledge(catalog, "two")
    assert not needed(catalog, either_catalog, "b") and pins(catalog) == []
    catalog.close()


def test_a_consumer_that_failed_keeps_its_pin_and_takes_it_over(config: StoreConfig) -> None:
    catalog = Catalog.open(config)
    with pytest.raises(ZeroDivisionError), pinned(catalog, "export", {"a", "b"}, read_us=catalog.now_us()):
        raise ZeroDivisionError
    assert needed(catalog, config, "a")
    with pinned(catalog, "export", {"b", "c"}, read_us=catalog.now_us()):
        assert [needed(catalog, config, name) for name in "abc"] == [False, True, True]
    assert pins(catalog) == []
    catalog.close()


def test_a_group_that_left_since_it_was_read_is_not_pinned(either_catalog: StoreConfig) -> None:
    catalog = Catalog.open(either_catalog)
    read_us = catalog.now_us()
    with catalog.writing().begin() as connection:
        connection.execute(t.retired_groups.insert().values(group_id="a", retired_us=read_us + 1))
        connection.execute(t.retired_groups.insert().values(group_id="back", retired_us=read_us - 1))
    with pytest.raises(GroupsGone, match="cannot pin group a for 'export': retention removed it since"):
        pin_groups(catalog, "export", {"a", "b"}, read_us=read_us)
    assert pins(catalog) == []
    pin_groups(catalog, "export", {"back"}, read_us=read_us)
    catalog.close()
