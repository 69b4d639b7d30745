"""Proxy processes that record into this store: their addresses, and when each was last alive.

Invariant: a live process renews its row; a process whose row is older than the lease is dead, or cannot reach the
catalog. Rows that nobody renewed for long are removed by any process that renews its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import Area
from weir.store.catalog.rows import ProxyRow, Recording
from weir.store.clock import now_us
from weir.store.errors import StoreUnavailable

HEARTBEAT_S = 5.0
LEASE_S = 30.0
FORGOTTEN_S = 600.0


def seen_proxy(catalog: Catalog, proxy_id: str, *, url: str, writer: str, recording: Recording | None = None) -> None:
    """Renew a process's row with the state of its recording; rows that nobody renewed for long are removed.

    Raises StoreUnavailable, as every function here.
    """
    now = now_us()
    known = t.proxies.c.proxy_id == proxy_id
    changing = {"url": url, "seen_us": now, **(asdict(recording) if recording is not None else {})}
    row = {"proxy_id": proxy_id, "writer": writer, "started_us": now, **changing}
    with _reached(), catalog.writing(Area.PROXIES).begin() as connection:
        connection.execute(t.proxies.delete().where(t.proxies.c.seen_us < now - int(FORGOTTEN_S * 1e6)))
        if connection.execute(t.proxies.update().where(known).values(changing)).rowcount == 0:
            connection.execute(t.proxies.insert().values(row))


def proxies(catalog: Catalog) -> list[ProxyRow]:
    """Every process that has a row, oldest first, including those whose lease has expired."""
    with _reached(), catalog.reading().begin() as connection:
        rows = connection.execute(sa.select(t.proxies).order_by(t.proxies.c.started_us, t.proxies.c.proxy_id)).all()
    return [ProxyRow(**row._mapping) for row in rows]


def is_live(row: ProxyRow) -> bool:
    """Whether the row was renewed within the lease."""
    return row.seen_us > now_us() - int(LEASE_S * 1e6)


def forget_proxy(catalog: Catalog, proxy_id: str) -> None:
    """Remove the row of a process that ends, or was found dead."""
    with _reached(), catalog.writing(Area.PROXIES).begin() as connection:
        connection.execute(t.proxies.delete().where(t.proxies.c.proxy_id == proxy_id))


@contextmanager
def _reached() -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise StoreUnavailable(f"the catalog cannot be asked about proxies: {error.orig}; look at the disk") from error
