"""Members of a cluster, what each does now, and what each did when; `weir train` writes them.

Invariants: one controller at a time writes, the one that holds the lease `CLUSTER`; a row of `phases` is written when
the phase begins and completed when it ends. What a killed controller left open ends at the moment at which it last saw
the member.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import database_now_us
from weir.store.catalog.leases import Lease, check_lease

CLUSTER = "cluster"  # the lease of the controller
_M, _P = t.members.c, t.phases.c


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """A member; `url` is None where it only trains, `note` says why it is lost."""

    name: str
    url: str | None
    tags: list[str]
    kind: str
    memory_gb: float | None
    train_priority: float
    phase: str
    weight_version: int | None = None
    note: str | None = None
    since_us: int = 0
    seen_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """What a member did; `seconds` are by activity, None while it continues or where nobody counted them."""

    phase_id: int
    member: str
    phase: str
    event: str
    weight_version: int | None
    began_us: int
    ended_us: int | None
    seconds: dict[str, float] | None


def take_over(catalog: Catalog, members: list[MemberRow], lease: Lease) -> None:
    """Replace the members by these, and end the phases that an earlier controller left open. Raises LeaseLost."""
    with catalog.writing().begin() as connection:
        check_lease(connection, lease)
        now = database_now_us(connection)
        seen = sa.select(_M.seen_us).where(_M.name == _P.member).scalar_subquery()
        is_open = _P.ended_us.is_(None)
        ended = sa.func.coalesce(sa.case((seen > _P.began_us, seen), else_=_P.began_us), _P.began_us)
        connection.execute(t.phases.update().where(is_open).values(ended_us=ended))
        connection.execute(t.members.delete())
        for member in members:
            row = asdict(member) | {"since_us": now, "seen_us": now}
            connection.execute(t.members.insert().values(row))


def add_member(catalog: Catalog, member: MemberRow, lease: Lease) -> None:
    """Enter a member beside those that are there. Raises LeaseLost."""
    with catalog.writing().begin() as connection:
        check_lease(connection, lease)
        now = database_now_us(connection)
        connection.execute(t.members.insert().values(asdict(member) | {"since_us": now, "seen_us": now}))


def move_member(catalog: Catalog, name: str, url: str, lease: Lease) -> None:
    """The engine of a member is at another address. Raises LeaseLost."""
    with catalog.writing().begin() as connection:
        check_lease(connection, lease)
        connection.execute(t.members.update().where(_M.name == name).values(url=url))


def begin_phase(
    catalog: Catalog,
    member: str,
    phase: str,
    event: str,
    lease: Lease,
    *,
    began_us: int,
    weight_version: int | None = None,
    note: str | None = None,
    seconds: dict[str, float] | None = None,
) -> None:
    """End the member's phase, whose `seconds` by activity these are, and begin another. Raises LeaseLost."""
    with catalog.writing().begin() as connection:
        check_lease(connection, lease)
        is_open = (_P.member == member) & _P.ended_us.is_(None)
        connection.execute(t.phases.update().where(is_open).values(ended_us=began_us, seconds=seconds))
        row: dict[str, Any] = {"phase": phase, "weight_version": weight_version}
        connection.execute(t.phases.insert().values(row | {"member": member, "event": event, "began_us": began_us}))
        changed = row | {"note": note, "since_us": began_us, "seen_us": began_us}
        connection.execute(t.members.update().where(_M.name == member).values(changed))


def see(catalog: Catalog, names: list[str], at_us: int) -> None:
    """These members answered."""
    with catalog.writing().begin() as connection:
        connection.execute(t.members.update().where(_M.name.in_(names)).values(seen_us=at_us))


def members(catalog: Catalog) -> list[MemberRow]:
    """All members, by name."""
    with catalog.reading().begin() as connection:
        rows = connection.execute(sa.select(t.members).order_by(_M.name)).all()
    return [MemberRow(**row._mapping) for row in rows]


def phases(catalog: Catalog) -> list[PhaseRow]:
    """All phases, in the order in which they began."""
    with catalog.reading().begin() as connection:
        rows = connection.execute(sa.select(t.phases).order_by(_P.began_us, _P.phase_id)).all()
    return [PhaseRow(**row._mapping) for row in rows]


def controlled_engines(catalog: Catalog) -> set[str]:
    """The engines whose rotation and weights a controller decides that lives: its lease has not expired."""
    with catalog.reading().begin() as connection:
        return _engines(connection, t.leases.c.expires_us > database_now_us(connection))


def deserted_engines(catalog: Catalog) -> set[str]:
    """The engines of a controller that was killed: its lease has expired, and it did not give it back."""
    with catalog.reading().begin() as connection:
        return _engines(connection, t.leases.c.expires_us.between(1, database_now_us(connection)))


def _engines(connection: sa.Connection, lease_is: sa.ColumnElement[bool]) -> set[str]:
    held = sa.exists().where((t.leases.c.name == CLUSTER) & lease_is)
    urls = connection.execute(sa.select(_M.url).where(_M.url.is_not(None), held)).scalars()
    return {url.rstrip("/") for url in urls}
