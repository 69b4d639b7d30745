"""One question to the views: it may only read, it ends in time, and its answer comes row by row or as Arrow batches.

Invariant: nothing but one SELECT (or EXPLAIN of one) is run, in a transaction that only reads, so that nothing a user
types can change the store, the snapshot of it, or a setting of the connection. Time is limited here; memory when the
connection is opened (views.py). Not here: how answers look (scripts/query_output.py).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from weir.store.errors import QueryRefused, QueryStopped
from weir.store.query.sql.views import VIEWS

if TYPE_CHECKING:
    import pyarrow as pa

FETCH_ROWS = 2048
_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"
_HINT = f"views: {', '.join(VIEWS)}; columns: DESCRIBE calls"

Parameters = Mapping[str, object]  # by the name that stands behind `$` in the query


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Names, DuckDB's names of the types, and rows that are fetched as they are read."""

    columns: list[str]
    types: list[str]
    rows: Iterator[tuple[Any, ...]]


@contextlib.contextmanager
def asking(connection: duckdb.DuckDBPyConnection, timeout_s: float | None = None) -> Iterator[None]:
    """Ask, and read the answer, within this: raises QueryStopped and QueryRefused in place of DuckDB's errors.

    Without a time there is no limit to it: an export takes as long as it takes.
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
        raise QueryStopped("the query was stopped, as asked") from error  # so DuckDB's module answers to Ctrl-C
    except duckdb.OutOfMemoryException as error:
        raise QueryStopped(
            "the query was stopped: it needs more memory than allowed; raise the limit (--memory-mb), or ask for less"
        ) from error
    except duckdb.Error as error:
        raise QueryRefused(f"{_first_sentence(error)} ({_HINT})") from error
    finally:
        timer.cancel()
        with contextlib.suppress(duckdb.Error):  # the connection was closed, say
            connection.execute("ROLLBACK")


def answer_rows(connection: duckdb.DuckDBPyConnection, query: str, parameters: Parameters) -> Answer:
    """The answer in Python's values; times with a zone are given in UTC without it, as all times of the views are."""
    check_question(connection, query)
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
    """The answer as Arrow batches, computed as they are read."""
    check_question(connection, query)
    return connection.sql(query, params=dict(parameters)).to_arrow_reader(FETCH_ROWS)


def check_question(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise QueryRefused unless this is one SELECT, or EXPLAIN of one."""
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


def _explained(text: str) -> str:
    """What an EXPLAIN or EXPLAIN ANALYZE is about."""
    rest = text.split(maxsplit=1)[1]
    first, *after = rest.split(maxsplit=1)
    return "".join(after) if first.lower() == "analyze" else rest


def _fetched(result: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := result.fetchmany(FETCH_ROWS):
        yield from rows


def _without_zones(description: list[tuple[Any, ...]], query: str) -> str:
    """The same query with such columns in UTC: DuckDB needs pytz to hand out a zone."""
    columns = (
        f"#{i}::TIMESTAMP AS {_quoted(name)}" if str(kind) == _WITH_ZONE else f"#{i}"
        for i, (name, kind, *_) in enumerate(description, 1)
    )
    return f"SELECT {', '.join(columns)} FROM (\n{query.strip().removesuffix(';')}\n)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_sentence(error: duckdb.Error) -> str:
    """DuckDB's message without the picture of the place, or what a function of ours said."""
    message = str(error).split(f"{QueryRefused.__name__}: ")[-1]
    return " ".join(message.split("\n\nLINE")[0].split())
