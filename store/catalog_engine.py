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

BUSY_TIMEOUT_S = 30.0


def now_us() -> int:
    """The time in unix microseconds."""
    return time.time_ns() // 1000


def insert_if_absent(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> sa.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql_insert(table).values(row).on_conflict_do_nothing()
    return sqlite_insert(table).values(row).on_conflict_do_nothing()


def make_engine(url: str) -> sa.Engine:
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_pre_ping=True)
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    sa.event.listen(engine, "connect", _on_sqlite_connect)
    sa.event.listen(engine, "begin", _on_sqlite_begin)
    return engine


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
