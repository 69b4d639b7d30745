"""Leases: exclusive rights to work that one process at a time may do, such as a round, on whatever machine.

Invariants: a lease has one holder until it expires, and the holder renews it. Its fencing token grows each time it is
taken. A writer checks the token in the transaction that it commits (`check_lease`), so that a holder that stalled while
another took over commits nothing. Time is the database's where several machines share one; after a clock went back,
nobody waits long for a holder that is gone.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.engine import database_now_us
from weir.store.errors import LeaseHeld, LeaseLost, StoreUnavailable

if TYPE_CHECKING:
    from weir.store.catalog.catalog import Catalog

ROUNDS = "rounds"  # the lease under which rounds are claimed and committed
COMPACTION = "compaction"
LONGEST = 10  # times the limit: a lease that expires later was taken before a clock went back

logger = logging.getLogger("weir.store.catalog.leases")
_L = t.leases.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to do the named work. `token` is greater than that of every earlier holder."""

    name: str
    holder: str
    token: int


def take_lease(catalog: Catalog, name: str, holder: str, limit_s: float) -> Lease:
    """Take a lease that is free, has expired, or is held under the same holder's name. Raises LeaseHeld.

    A caller that takes a lease again under its own name must know that no work continues under the old one.
    """
    longest_us = int(LONGEST * limit_s * 1e6)
    with catalog.writing().begin() as connection:
        now = database_now_us(connection)
        too_late = (_L.name == name) & (_L.expires_us > now + longest_us)
        connection.execute(t.leases.update().where(too_late).values(expires_us=now + longest_us))
        found = connection.execute(sa.select(t.leases).where(_L.name == name)).first()
        is_held = found is not None and found.holder != holder and found.expires_us > now
        lease = Lease(name=name, holder=holder, token=1 if found is None else found.token + 1)
        row = {"holder": holder, "token": lease.token, "expires_us": now + int(limit_s * 1e6)}
        if found is None:
            connection.execute(t.leases.insert().values(name=name, **row))
        elif not is_held:
            connection.execute(t.leases.update().where(_L.name == name).values(row))
    if found is not None and is_held:
        left_s = (found.expires_us - now) / 1e6
        raise LeaseHeld(
            f"{found.holder} holds the lease {name!r} for {left_s:.0f} s more, unless it renews it; try again then"
        )
    return lease


def renew_lease(catalog: Catalog, lease: Lease, limit_s: float) -> None:
    """Extend the lease to `limit_s` from now, also where it expired and nobody took it. Raises LeaseLost."""
    with catalog.writing().begin() as connection:
        check_lease(connection, lease)
        expires_us = database_now_us(connection) + int(limit_s * 1e6)
        connection.execute(t.leases.update().where(_L.name == lease.name).values(expires_us=expires_us))


def give_lease_back(catalog: Catalog, lease: Lease) -> None:
    """Free the lease at once. A lease that was lost is left alone."""
    mine = (_L.name == lease.name) & (_L.token == lease.token)
    with catalog.writing().begin() as connection:
        connection.execute(t.leases.update().where(mine).values(expires_us=0))


def check_lease(connection: sa.Connection, lease: Lease) -> None:
    """Check, inside a writer's transaction, that nobody has taken the lease since. Raises LeaseLost."""
    found = connection.execute(sa.select(t.leases).where(_L.name == lease.name)).first()
    if found is None or found.token != lease.token:
        taker = "nobody" if found is None else f"{found.holder} with token {found.token}"
        raise LeaseLost(
            f"{lease.holder} has lost the lease {lease.name!r} (token {lease.token}) to {taker}: "
            "its commit is refused, and the other process continues the work"
        )


@contextlib.contextmanager
def held_lease(catalog: Catalog, name: str, holder: str, limit_s: float) -> Iterator[Lease]:
    """Hold a lease while the block runs; a thread renews it. Raises LeaseHeld.

    A lost lease shows where `check_lease` is called.
    """
    lease = take_lease(catalog, name, holder, limit_s)
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(catalog, lease, limit_s, ended), name=f"weir-lease-{name}")
    renewing.start()
    try:
        yield lease
    finally:
        ended.set()
        renewing.join()
        with contextlib.suppress(StoreUnavailable):  # it expires by itself
            give_lease_back(catalog, lease)


def _renew(catalog: Catalog, lease: Lease, limit_s: float, ended: threading.Event) -> None:
    while not ended.wait(limit_s / 3):
        try:
            renew_lease(catalog, lease, limit_s)
        except StoreUnavailable as error:
            logger.warning("the lease %s could not be renewed and will be retried: %s", lease.name, error)
        except LeaseLost as error:
            logger.error("%s", error)
            return
