"""The SQL views over a snapshot: calls, tokens, sessions, branches, groups, rewards, evaluations, rounds, versions.

Invariants: one connection is one snapshot. DuckDB may read the snapshot's Parquet files and nothing else (of those in
object storage, the ranges that a query needs), its settings are locked, and its data of the catalog and the log are
copies. docs/sql.md documents the columns; a test compares them.
"""

from __future__ import annotations

import itertools
import json
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.config import StoreConfig
from weir.store.parquet.columns import PLACE_COLUMNS, SCHEMA, call_table, missing_columns
from weir.store.parquet.placement import Placement, place
from weir.store.query.left_out import BOUNDS, FILES, files_sql
from weir.store.query.question import reading_files
from weir.store.query.ranged_files import RangedFiles, url_of
from weir.store.query.snapshot import Rows, Snapshot, take_snapshot
from weir.store.query.sql.macros import MACROS
from weir.store.query.sql.views import VIEWS
from weir.store.query.token_text import reader_of_text
from weir.store.records.tree import Link
from weir.store.shared.object_store import objects_of
from weir.store.spill import SpillFolder

CATALOG_TABLES = (
    *(t.groups, t.sessions, t.rewards, t.evaluations, t.rounds, t.round_groups, t.versions),
    *(t.refusals, t.lost_calls, t.actions, t.members, t.phases, t.budgets),
)
SECRET_COLUMN = "key_hash"  # hashes of agents' keys are not for queries


def open_views(config: StoreConfig, tokenizer: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with all views, over the store as it is now; closing it releases the snapshot.

    Raises SchemaTooNew and StoreUnavailable.
    """
    connection = duckdb.connect()
    snapshot = take_snapshot(config, CATALOG_TABLES)
    weakref.finalize(connection, snapshot.pin.release_soon)
    placed = Placement()
    if snapshot.hot:
        placed = place(snapshot.hot, snapshot.paths, snapshot.fileset.relinks)
    _limit(connection, config)
    connection.execute("SET enable_progress_bar = false")  # it prints on standard output, where answers go
    # Files never change, so each footer is read once. Cursors take over only what is set for all.
    connection.execute("SET GLOBAL parquet_metadata_cache = true; SET GLOBAL TimeZone = 'UTC'; CREATE SCHEMA stored")
    connection.create_function("token_text", reader_of_text(tokenizer), ["INTEGER[]"], "VARCHAR")
    for table in CATALOG_TABLES:
        _keep(connection, table.name, _catalog_arrow(table, snapshot.tables[table.name]))
        _json_columns(connection, table)
    _keep(connection, "hot", call_table(placed.fresh, placed.places, placed.end_hashes))
    moved = {**snapshot.fileset.relinks, **placed.moved}
    _keep(connection, "relinks", _relinks_arrow(moved))
    sources = _sources(connection, config, snapshot)
    _keep(connection, FILES, _files_arrow(snapshot, sources))
    calls = _calls_sql(sources, any_hot=bool(placed.fresh), any_moved=bool(moved))
    with reading_files():
        connection.execute(f"CREATE VIEW stored.calls AS {calls}")
    for name, query in VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {query}")
    for macro in MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    _lock(connection, list(itertools.chain.from_iterable(sources.values())))
    return connection


def _limit(connection: duckdb.DuckDBPyConnection, config: StoreConfig) -> None:
    """Bound the memory of queries, and what they spill to the disk where they need more."""
    connection.execute(f"SET memory_limit = '{config.query_memory_mb}MiB'; SET temp_directory = ''")
    if config.query_spill_mb:
        spill = SpillFolder(config)
        weakref.finalize(connection, spill.remove)
        connection.execute("SET temp_directory = $1", [str(spill.blocks.absolute())])
        connection.execute(f"SET max_temp_directory_size = '{spill.max_bytes // 1024}KiB'")


def _lock(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> None:
    if paths:
        connection.execute("SET allowed_paths = $1", [list(paths)])
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")


def _sources(
    connection: duckdb.DuckDBPyConnection, config: StoreConfig, snapshot: Snapshot
) -> Mapping[int, Sequence[str]]:
    """The Parquet files by schema version, as DuckDB finds them: paths, or URLs where it reads ranges."""
    objects = objects_of(config)
    if objects is not None and snapshot.ranged:
        ranged = [file for file in snapshot.fileset.files if file.file_id in snapshot.ranged]
        connection.register_filesystem(RangedFiles(config, objects, ranged))
    found: dict[int, list[str]] = {}
    for file in snapshot.fileset.files:
        source = url_of(file) if file.file_id in snapshot.ranged else str(snapshot.root / file.path)
        found.setdefault(file.schema_version, []).append(source)
    return found


def _calls_sql(sources: Mapping[int, Sequence[str]], any_hot: bool, any_moved: bool) -> str:
    """The call columns of files and log together, with the places that changed since compaction.

    An empty log is left out, which saves a seventh of a query's time, unless columns would be missing without it.
    """
    whole = any(not missing_columns(schema_version) for schema_version in sources)
    parts = ["SELECT * FROM stored.hot"] if any_hot or not whole else []
    for schema_version, paths in sorted(sources.items()):
        moves = "LEFT JOIN stored.relinks m ON m.call_id = f.call_id" if any_moved else ""
        missing = missing_columns(schema_version)
        columns = ", ".join(_column_sql(name, any_moved) for name in SCHEMA.names if name not in missing)
        parts.append(f"SELECT {columns} FROM read_parquet({files_sql(schema_version, paths)}) f {moves}")
    return " UNION ALL BY NAME ".join(parts)


def _column_sql(name: str, any_moved: bool) -> str:
    if any_moved and name in PLACE_COLUMNS:
        return f"CASE WHEN m.call_id IS NULL THEN f.{name} ELSE m.{name} END AS {name}"
    return f"f.{name}"


def _keep(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Copy an Arrow table into the connection."""
    connection.register("arriving", table)
    connection.execute(f"CREATE TABLE stored.{name} AS SELECT * FROM arriving")
    connection.unregister("arriving")


def _json_columns(connection: duckdb.DuckDBPyConnection, table: sa.Table) -> None:
    for column in table.columns:
        if isinstance(column.type, sa.JSON):
            connection.execute(f"ALTER TABLE stored.{table.name} ALTER {column.name} TYPE JSON")


def _arrow_type(column: sa.Column[Any]) -> pa.DataType:
    for kind, arrow in ((sa.Boolean, pa.bool_()), (sa.Integer, pa.int64()), (sa.Float, pa.float64())):
        if isinstance(column.type, kind):
            return arrow
    return pa.string()


def _catalog_arrow(table: sa.Table, rows: Rows) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(table.columns)
    arrays = {}
    for column, values in zip(table.columns, columns, strict=True):
        if isinstance(column.type, sa.JSON):
            values = tuple(None if value is None else json.dumps(value) for value in values)
        if column.name != SECRET_COLUMN:
            arrays[column.name] = pa.array(values, _arrow_type(column))
    return pa.table(arrays)


def _files_arrow(snapshot: Snapshot, sources: Mapping[int, Sequence[str]]) -> pa.Table:
    """The files with their bounds, in the order in which they are listed."""
    schema = pa.schema(
        [
            ("source", pa.string()),
            *((name, pa.int64()) for name in ("place", "schema_version", "num_bytes", *BOUNDS)),
        ]
    )
    listed = {schema_version: iter(found) for schema_version, found in sources.items()}
    rows = [
        {
            "place": place,
            "schema_version": file.schema_version,
            "source": next(listed[file.schema_version]),
            "num_bytes": file.num_bytes,
            **{name: getattr(file, name) for name in BOUNDS},
        }
        for place, file in enumerate(snapshot.fileset.files)
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def _relinks_arrow(moved: Mapping[str, Link]) -> pa.Table:
    schema = pa.schema([SCHEMA.field("call_id"), *(SCHEMA.field(name) for name in PLACE_COLUMNS)])
    rows = [
        {"call_id": call_id, **{name: getattr(place, name) for name in PLACE_COLUMNS}}
        for call_id, place in moved.items()
    ]
    return pa.Table.from_pylist(rows, schema=schema)
