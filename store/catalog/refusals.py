"""Requests that a proxy refused, so that an agent that never got an answer is found in the store.

Invariants: equal refusals are one row with a count, so that a client in a loop adds none; the store keeps the latest
`KEPT` different ones, and the requests of the others are counted in one row, `LEFT_OUT`. No request is counted twice or
lost by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import msgspec
import sqlalchemy as sa
from xxhash import xxh3_128_hexdigest

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog, in_portions
from weir.store.catalog.engine import Area

KEPT = 10_000
LEFT_OUT = "left out"  # refusal_id of the row that counts the rest
_R = t.refusals.c
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What was refused and why. Refusals that are equal are one."""

    session_id: str | None  # as the request names it
    key_name: str | None  # of the access key
    method: str
    route: str
    status: int
    code: str
    field: str | None
    message: str
    body_digest: str | None  # xxh3-128 of the body, in hexadecimal; None: it was not read

    @property
    def refusal_id(self) -> str:
        """The key of its row."""
        return xxh3_128_hexdigest(_encode(list(asdict(self).values())))


@dataclass(slots=True, kw_only=True)
class Times:
    """How often and when (unix microseconds) it was refused."""

    num_requests: int
    first_us: int
    last_us: int

    def add(self, other: Times) -> None:
        """Count more of the same."""
        self.num_requests += other.num_requests
        self.first_us = min(self.first_us, other.first_us)
        self.last_us = max(self.last_us, other.last_us)


REST = Refusal(
    session_id=None,
    key_name=None,
    method="",
    route="",
    status=0,
    code="left_out",
    field=None,
    message=f"other requests that were refused: the store keeps the latest {KEPT:,} different refusals",
    body_digest=None,
)


def note_refusals(catalog: Catalog, refused: Mapping[Refusal, Times], kept: int = KEPT) -> None:
    """Add refusals; the oldest beyond `kept` are counted together, as those of `REST` are."""
    with catalog.writing(Area.REFUSALS).begin() as connection:
        for refusal, times in refused.items():
            _add(connection, refusal, times)
        excess = (connection.scalar(sa.select(sa.func.count()).where(_R.refusal_id != LEFT_OUT)) or 0) - kept
        if excess > 0:
            _leave_out(connection, excess)


def _add(connection: sa.Connection, refusal: Refusal, times: Times) -> None:
    refusal_id = LEFT_OUT if refusal == REST else refusal.refusal_id
    known = connection.execute(sa.select(t.refusals).where(_R.refusal_id == refusal_id)).first()
    if known is None:
        row = {"refusal_id": refusal_id, **asdict(refusal), **asdict(times)}
        connection.execute(t.refusals.insert().values(row))
        return
    total = Times(num_requests=known.num_requests, first_us=known.first_us, last_us=known.last_us)
    total.add(times)
    connection.execute(t.refusals.update().where(_R.refusal_id == refusal_id).values(asdict(total)))


def _leave_out(connection: sa.Connection, excess: int) -> None:
    oldest = sa.select(_R.refusal_id, _R.num_requests, _R.first_us, _R.last_us).where(_R.refusal_id != LEFT_OUT)
    leaving = connection.execute(oldest.order_by(_R.last_us, _R.refusal_id).limit(excess)).all()
    total = Times(num_requests=0, first_us=leaving[0].first_us, last_us=leaving[0].last_us)
    for row in leaving:
        total.add(Times(num_requests=row.num_requests, first_us=row.first_us, last_us=row.last_us))
    _add(connection, REST, total)
    for some in in_portions([row.refusal_id for row in leaving]):
        connection.execute(t.refusals.delete().where(_R.refusal_id.in_(some)))
