"""Runs one query over the views: read-only, limited in time, with its answer row by row or as Arrow batches.

Invariant: only a single SELECT (or EXPLAIN of one) runs, in a read-only transaction, so that no input can change the
store, its snapshot, or a setting of the connection. Time is limited here; memory is limited when the connection is
opened.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from weir.store.errors import QueryRefused, QueryStopped, StoreCorrupt, StoreError, StoreUnavailable
from weir.store.query.left_out import leave_out, read_all
from weir.store.query.sql.views import VIEWS

if TYPE_CHECKING:
    import pyarrow as pa

FETCH_ROWS = 2048
SPILLED = "duckdb_temp_"  # in the names of DuckDB's files of what it spilled
_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"
_HINT = f"views: {', '.join(VIEWS)}; columns: DESCRIBE calls"

Parameters = Mapping[str, object]  # by the name after `$` in the query


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Column names, DuckDB's type names, and rows that are fetched as they are read."""

    columns: list[str]
    types: list[str]
    rows: Iterator[tuple[Any, ...]]


@contextlib.contextmanager
def asking(connection: duckdb.DuckDBPyConnection, timeout_s: float | None = None) -> Iterator[None]:
    """Run a query and read its answer within this block, which turns DuckDB's errors into ours.

    Raises QueryStopped for a limit or an interrupt, QueryRefused for an invalid query, StoreUnavailable and
    StoreCorrupt where object storage refuses or lacks what is to be read. Without a time there is no limit, as for
    exports.
    """
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        connection.interrupt()

    timer = threading.Timer(timeout_s or 0, stop)
    timer.daemon = True
    if timeout_s is not None:
        timer.start()
    try:
        connection.execute("BEGIN TRANSACTION READ ONLY")
        yield
    except duckdb.InterruptException as error:
        why = f"it took longer than {timeout_s:g} s; raise the limit (--timeout-s)" if is_late.is_set() else "as asked"
        raise QueryStopped(f"the query was stopped: {why}") from error
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise QueryStopped("the query was stopped, as asked") from error  # DuckDB's module raises this on Ctrl-C
    except duckdb.OutOfMemoryException as error:
        raise QueryStopped(_stopped_for_memory(error)) from error
    except duckdb.IOException as error:
        if SPILLED not in str(error):
            raise _refused(error) from error
        raise QueryStopped(
            f"the query was stopped: what it spills could not be written ({first_sentence(error)}); free some space "
            "on that disk, lower store.query_spill_mb, or ask for less"
        ) from error
    except duckdb.Error as error:
        raise _of_reading(error) or _refused(error) from error
    finally:
        timer.cancel()
        _roll_back(connection)
        _read_all(connection)


@contextlib.contextmanager
def reading_files() -> Iterator[None]:
    """Raise what kept DuckDB from reading a range of object storage: StoreUnavailable, StoreCorrupt or QueryStopped."""
    try:
        yield
    except duckdb.Error as error:
        raise _of_reading(error) or error from error


def answer_rows(connection: duckdb.DuckDBPyConnection, query: str, parameters: Parameters) -> Answer:
    """Run a query, while `asking`; rows have Python values, and times with a zone are in UTC, as in all views."""
    check_question(connection, query)
    leave_out(connection, query, parameters)
    result = connection.execute(query, dict(parameters))
    if any(str(kind) == _WITH_ZONE for _, kind, *_ in result.description):
        connection.abort()
        result = connection.execute(_without_zones(result.description, query), dict(parameters))
    return Answer(
        columns=[name for name, *_ in result.description],
        types=[str(kind) for _, kind, *_ in result.description],
        rows=_fetched(result),
    )


def answer_batches(connection: duckdb.DuckDBPyConnection, query: str, parameters: Parameters) -> pa.RecordBatchReader:
    """Run a query, while `asking`; its answer as Arrow batches, computed as they are read."""
    check_question(connection, query)
    leave_out(connection, query, parameters)
    return connection.sql(query, params=dict(parameters)).to_arrow_reader(FETCH_ROWS)


def check_question(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise QueryRefused unless the text is one SELECT, or EXPLAIN of one."""
    statements = connection.extract_statements(query)
    if len(statements) == 1:
        kind, text = statements[0].type, statements[0].query.strip()
        if kind == duckdb.StatementType.SELECT:
            return
        if kind == duckdb.StatementType.EXPLAIN:
            return check_question(connection, _explained(text))
        if kind == duckdb.StatementType.MULTI:
            raise QueryRefused(
                "cannot run this: a PIVOT names its values, as in PIVOT calls ON role IN ('turn', 'fork')"
            )
    raise QueryRefused(f"cannot run this: give one SELECT; the store is read-only ({_HINT})")


def _refused(error: duckdb.Error) -> QueryRefused:
    return QueryRefused(f"{first_sentence(error)} ({_HINT})")


def _of_reading(error: duckdb.Error) -> StoreError | None:
    """What ended the reading of a range: DuckDB passes on the text of its traceback only."""
    message = str(error).strip(": \n")
    if not message.startswith("Traceback"):
        return None
    if message.endswith(KeyboardInterrupt.__name__):
        return QueryStopped("the query was stopped, as asked")
    for kind in (StoreUnavailable, StoreCorrupt):
        _, is_it, said = message.rpartition(f"{kind.__name__}: ")
        if is_it:
            return kind(" ".join(said.split()))
    return None


def _stopped_for_memory(error: duckdb.OutOfMemoryException) -> str:
    spilled = "and more room on the disk " if "max_temp_directory_size" in str(error) else ""
    raised = "the limits (--memory-mb, store.query_spill_mb)" if spilled else "the limit (--memory-mb)"
    return f"the query was stopped: it needs more memory {spilled}than allowed; raise {raised}, or ask for less"


def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    """End the transaction; an interrupt that comes after the query's end stops only one attempt."""
    try:
        connection.execute("ROLLBACK")
    except KeyboardInterrupt:
        _roll_back(connection)
        raise
    except duckdb.InterruptException:
        _roll_back(connection)
    except duckdb.Error:  # e.g. the connection was closed
        return
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        _roll_back(connection)


def _read_all(connection: duckdb.DuckDBPyConnection) -> None:
    """The next question may need the files that this one left out."""
    try:
        read_all(connection)
    except duckdb.InterruptException:  # one that came after the query's end
        _read_all(connection)
    except (duckdb.ConnectionException, duckdb.FatalException):  # it was closed, or can be asked nothing more
        return


def _explained(text: str) -> str:
    """The query inside an EXPLAIN or EXPLAIN ANALYZE."""
    rest = text.split(maxsplit=1)[1]
    first, *after = rest.split(maxsplit=1)
    return "".join(after) if first.lower() == "analyze" else rest


def _fetched(result: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := result.fetchmany(FETCH_ROWS):
        yield from rows


def _without_zones(description: list[tuple[Any, ...]], query: str) -> str:
    """The query with such columns in UTC: DuckDB needs pytz to return a zone."""
    columns = (
        f"#{i}::TIMESTAMP AS {_quoted(name)}" if str(kind) == _WITH_ZONE else f"#{i}"
        for i, (name, kind, *_) in enumerate(description, 1)
    )
    return f"SELECT {', '.join(columns)} FROM (\n{query.strip().removesuffix(';')}\n)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def first_sentence(error: duckdb.Error) -> str:
    """DuckDB's message without its excerpt of the query, or the message of one of our functions."""
    message = str(error).split(f"{QueryRefused.__name__}: ")[-1]
    return " ".join(message.split("\n\nLINE")[0].split())
