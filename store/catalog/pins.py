"""Pins: groups that a consumer reads, and that stay in the store until the consumer has acknowledged them.

Invariants: retention removes no pinned group, whatever its age or the size of the store. A pin has no lease: who is
killed leaves it, and the same consumer, run again, takes it over under the same name. It ends when its consumer's
results are where they belong, or when a person drops it. A round's claim is a pin of its own kind: `round_groups`,
until the round is committed. The pins of snapshots (`query/pin.py`) are another matter: they keep files, not calls.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog, in_portions
from weir.store.catalog.engine import database_now_us
from weir.store.errors import GroupsGone


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One consumer's pin."""

    name: str
    holder: str  # machine and process that made it
    num_groups: int
    pinned_us: int


def pin_groups(catalog: Catalog, name: str, group_ids: Collection[str], *, read_us: int) -> None:
    """Pin groups that were read at `read_us`, in place of what this name pinned before.

    Raises GroupsGone where retention has removed one of them since.
    """
    with catalog.writing().begin() as connection:
        for some in in_portions(sorted(group_ids)):
            gone = t.retired_groups.c.group_id.in_(some) & (t.retired_groups.c.retired_us >= read_us)
            group_id = connection.scalar(sa.select(t.retired_groups.c.group_id).where(gone).limit(1))
            if group_id is not None:
                raise GroupsGone(
                    f"cannot pin group {group_id} for {name!r}: retention removed it since it was read; run it again"
                )
        _drop(connection, name)
        holder = f"{socket.gethostname()}:{os.getpid()}"
        connection.execute(t.pins.insert().values(name=name, holder=holder, pinned_us=database_now_us(connection)))
        if group_ids:
            rows = [{"group_id": group_id, "name": name} for group_id in sorted(group_ids)]
            connection.execute(t.pinned_groups.insert(), rows)


def acknowledge(catalog: Catalog, name: str) -> bool:
    """End a pin: its consumer's results are where they belong. False where there is none of this name."""
    with catalog.writing().begin() as connection:
        return _drop(connection, name)


@contextmanager
def pinned(catalog: Catalog, name: str, group_ids: Collection[str], *, read_us: int) -> Iterator[None]:
    """Pin groups for the block, and acknowledge them at its end. After an error they stay pinned. Raises GroupsGone."""
    pin_groups(catalog, name, group_ids, read_us=read_us)
    yield
    acknowledge(catalog, name)


def pins(catalog: Catalog) -> list[Pin]:
    """Every pin, the oldest first."""
    p, g = t.pins.c, t.pinned_groups.c
    counted = sa.select(p.name, p.holder, p.pinned_us, sa.func.count(g.group_id).label("num_groups"))
    query = counted.outerjoin(t.pinned_groups, g.name == p.name).group_by(p.name, p.holder, p.pinned_us)
    with catalog.reading().begin() as connection:
        return [Pin(**row._mapping) for row in connection.execute(query.order_by(p.pinned_us, p.name))]


def _drop(connection: sa.Connection, name: str) -> bool:
    connection.execute(t.pinned_groups.delete().where(t.pinned_groups.c.name == name))
    return connection.execute(t.pins.delete().where(t.pins.c.name == name)).rowcount > 0
