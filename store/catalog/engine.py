"""SQLAlchemy engines for the catalog's database: SQLite in WAL mode by default, PostgreSQL by URL.

Invariants: a transaction with the execution option `weir_write` names the areas that it decides on, and holds their
write locks before it reads, so that two writers never decide on the same state; every other transaction sees one state
of the catalog from its first statement to its last, and writes nothing. SQLite has one write lock for all areas.
"""

from __future__ import annotations

import enum
import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import OperationalError

from weir.store.clock import now_us
from weir.store.errors import StoreUnavailable

BUSY_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10
IDLE_TIMEOUT_S = 60  # a writer that stalls between two statements loses the write lock


class Area(enum.IntEnum):
    """What a writer decides on, with the key of its advisory lock on PostgreSQL.

    Tables of different areas do not depend on each other, so that what every call or heartbeat writes does not wait
    for a compaction or a round. Whoever needs several areas locks them in this order, so that nobody waits in a circle.
    """

    RECORDS = 0x57454952  # sessions, groups, rewards, rounds, versions, leases, files, segments, pins, members
    BUDGETS = 0x57454953
    PROXIES = 0x57454954
    READERS = 0x57454955  # snapshots that are renewed or released; they begin under RECORDS
    REFUSALS = 0x57454956
    KEYS = 0x57454957
    ACTIONS = 0x57454958
    ENGINES = 0x57454959  # which sleep, and what their changes of hands cost


_REFUSALS = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    )
)


def database_now_us(connection: sa.Connection) -> int:
    """Unix time in microseconds by the clock that all users of the catalog share: the database server's."""
    if connection.dialect.name != "postgresql":
        return now_us()
    return int(connection.scalar(sa.text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")) or 0)


def insert_if_absent(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> sa.Insert:
    """An INSERT that does nothing where the row's key exists."""
    if connection.dialect.name == "postgresql":
        return postgresql_insert(table).values(row).on_conflict_do_nothing()
    return sqlite_insert(table).values(row).on_conflict_do_nothing()


def make_engine(url: str) -> sa.Engine:
    """An engine for the catalog at a URL of SQLite or PostgreSQL; it connects on first use."""
    address = sa.make_url(url)
    if address.get_backend_name() == "postgresql":
        engine = _postgresql_engine(address)
    else:
        engine = sa.create_engine(address, connect_args={"timeout": BUSY_TIMEOUT_S})
        sa.event.listen(engine, "connect", _on_sqlite_connect)
        sa.event.listen(engine, "begin", _on_sqlite_begin)
    sa.event.listen(engine, "handle_error", _name_refusal)
    return engine


def _postgresql_engine(address: sa.URL) -> sa.Engine:
    limits = {"lock_timeout": BUSY_TIMEOUT_S, "idle_in_transaction_session_timeout": IDLE_TIMEOUT_S}
    options = " ".join(f"-c {name}={int(seconds * 1000)}" for name, seconds in limits.items())
    engine = sa.create_engine(
        address.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "options": options},
    )
    sa.event.listen(engine, "begin", _on_postgresql_begin)
    return engine


def _name_refusal(context: sa.engine.ExceptionContext) -> None:
    """Turn an unreachable or refusing database into StoreUnavailable; errors in a statement stay as they are."""
    cause = context.original_exception
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        refused = context.dialect.name != "sqlite" and isinstance(context.sqlalchemy_exception, OperationalError)
    else:
        refused = code & 0xFF in _REFUSALS  # the higher bits are the extended code
    if refused:
        reason = " ".join(str(cause).split())  # PostgreSQL's messages have several lines
        raise StoreUnavailable(
            f"the catalog refuses: {reason}; look at its disk or server, and at who else writes to it"
        ) from cause


def _on_sqlite_connect(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late: see _on_sqlite_begin
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _on_sqlite_begin(connection: sa.Connection) -> None:
    """Take the write lock before the first read, so that two writers cannot decide on the same state."""
    write = connection.get_execution_options().get("weir_write", ())
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _on_postgresql_begin(connection: sa.Connection) -> None:
    """Writers of an area one after another, each on the state of the one before; readers on one state."""
    areas = connection.get_execution_options().get("weir_write", ())
    for area in sorted(areas):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({int(area)})")
    if not areas:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold a file's lock: one process at a time creates the tables and switches SQLite to WAL."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
