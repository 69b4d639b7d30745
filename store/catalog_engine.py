"""How the catalog's database is reached: SQLite in WAL mode by default, PostgreSQL by URL.

Invariant: a transaction of an engine with the execution option `weir_write` holds the write lock before it reads, so
two writers never decide on the same state. Not here: tables (catalog_schema.py) and what is done with them.
"""

from __future__ import annotations

import fcntl
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import OperationalError

from weir.store.errors import StoreUnavailable

BUSY_TIMEOUT_S = 30.0
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


def now_us() -> int:
    """The time in unix microseconds."""
    return time.time_ns() // 1000


def insert_if_absent(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> sa.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql_insert(table).values(row).on_conflict_do_nothing()
    return sqlite_insert(table).values(row).on_conflict_do_nothing()


def make_engine(url: str) -> sa.Engine:
    if not url.startswith("sqlite"):
        engine = sa.create_engine(url, pool_pre_ping=True)
        sa.event.listen(engine, "handle_error", _name_refusal)
        return engine
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    sa.event.listen(engine, "handle_error", _name_refusal)
    sa.event.listen(engine, "connect", _on_sqlite_connect)
    sa.event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _name_refusal(context: sa.engine.ExceptionContext) -> None:
    """A database that cannot be reached or refuses is a `StoreUnavailable`; a wrong statement stays what it is."""
    cause = context.original_exception
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        refused = context.dialect.name != "sqlite" and isinstance(context.sqlalchemy_exception, OperationalError)
    else:
        refused = code & 0xFF in _REFUSALS  # the higher bits say more of the same
    if refused:
        raise StoreUnavailable(
            f"the catalog refuses: {cause}; look at its disk, and at who else writes to it"
        ) from cause


def _on_sqlite_connect(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late: see _on_sqlite_begin
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _on_sqlite_begin(connection: sa.Connection) -> None:
    """A writer takes the write lock before it reads, so that two cannot decide on the same state."""
    write = connection.get_execution_options().get("weir_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Wait for a file's lock and hold it: the tables are made, and SQLite is switched to WAL, by one process."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
