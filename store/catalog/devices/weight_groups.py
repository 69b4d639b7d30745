"""The process groups that engines were asked to join to receive weights, of engines that do not name theirs.

Invariant: a group has a row from before an engine is asked to join it until it has left, so that whoever publishes
after a crash knows what to have it leave.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import Area

_G = t.weight_groups.c


def note_groups(catalog: Catalog, urls: Collection[str], groups: Collection[str]) -> None:
    """Note that engines are about to be asked to join groups; none of them may be noted already."""
    rows = [{"url": url, "group_name": group} for url in urls for group in groups]
    with catalog.writing(Area.ENGINES).begin() as connection:
        connection.execute(t.weight_groups.insert(), rows)


def forget_groups(catalog: Catalog, urls: Collection[str], groups: Collection[str]) -> None:
    """Note that engines are in these groups no more."""
    with catalog.writing(Area.ENGINES).begin() as connection:
        connection.execute(t.weight_groups.delete().where(_G.url.in_(list(urls)) & _G.group_name.in_(list(groups))))


def noted_groups(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The groups that engines may still be in, by URL."""
    found: dict[str, tuple[str, ...]] = {}
    with catalog.reading().begin() as connection:
        for row in connection.execute(sa.select(t.weight_groups).order_by(_G.url, _G.group_name)):
            found[row.url] = (*found.get(row.url, ()), row.group_name)
    return found
