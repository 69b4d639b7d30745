"""`weir sql`, `weir sessions`, `weir show`, `weir store status`, `weir store compact`: asking the store.

Each command takes the store of weir.toml, or the folder given by `--root`. Results go to stdout, remarks to stderr.
"""

from __future__ import annotations

import enum
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weir.scripts.errors import UsageError
from weir.scripts.settings import ConfigOption, RootOption, existing_store

if TYPE_CHECKING:
    import duckdb

    from weir.scripts.query_output import Answer


class Format(enum.StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def sql(
    query: Annotated[str | None, typer.Argument(help="One SELECT; read from stdin when it is left out or '-'.")] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="How the answer is printed.")] = Format.TABLE,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Ask the store in SQL.

    DuckDB's SQL, over the views calls, labels, tokens, sessions, branches, groups, rewards, evaluations, rounds and
    versions.
    """
    from weir.scripts.query_output import print_answer
    from weir.store.reader import connect

    store = existing_store(root, config)
    if query is None or query == "-":
        if sys.stdin.isatty():
            raise UsageError('there is no query: weir sql "SELECT count(*) FROM calls", or one on stdin')
        query = sys.stdin.read()
    with connect(store) as connection:
        print_answer(_ask(connection, query), format.value)


def sessions(
    group: Annotated[str | None, typer.Option(help="Only sessions of this group (or of ids that begin so).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest sessions.")] = 50,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """List the latest sessions.

    With their calls, turns, tokens, reward, weight versions, and how they ended.
    """
    from weir.scripts.session_tree import print_sessions
    from weir.store.reader import connect

    with connect(existing_store(root, config)) as connection:
        print_sessions(connection, group, limit)


def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A session or group, or the beginning of its id.")
    ] = None,
    call: Annotated[str | None, typer.Option(help="One call instead, by its id: all of it.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Print every message and answer whole.")] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="With --call: its tokens and their logprobs.")] = False,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Show a session as a tree of calls, or one call whole.

    Also all sessions of a group. Turns stand below each other; what branches off (retries, forks) is indented;
    sub-agents and compactions are trees of their own.
    """
    from weir.scripts.call_view import print_call
    from weir.scripts.session_tree import print_trees
    from weir.store.reader import connect

    if (name is None) == (call is None):
        raise UsageError("name a session or group, or a call by --call; `weir sessions` lists sessions")
    with connect(existing_store(root, config)) as connection:
        if call is not None:
            print_call(connection, call, with_tokens=tokens)
        elif name is not None:
            print_trees(connection, name, whole_text=full)


def store_status(root: RootOption = None, config: ConfigOption = None) -> None:
    """Say what the store consists of.

    Log segments, Parquet files, calls, bytes, and what could not be read.
    """
    from weir.store.status import store_status as read_status

    store = existing_store(root, config)
    status = read_status(store)
    typer.echo(f"store       {store.root} ({store.durability} durability), catalog {status.catalog}")
    typer.echo(f"calls       {status.calls:,}: {status.stored_calls:,} in Parquet, {status.hot_calls:,} in the log")
    typer.echo(f"files       {status.files:,} Parquet, {status.file_bytes:,} bytes")
    typer.echo(
        f"log         {status.open_segments:,} open and {status.sealed_segments:,} sealed segments waiting, "
        f"{status.log_bytes:,} bytes; {status.compacted_segments:,} compacted before"
    )
    typer.echo(f"dropped     {status.bytes_dropped:,} bytes that no record could be read from")
    for segment_id, reason in status.damaged:
        typer.echo(f"            {segment_id}: {reason}")
    typer.echo(f"sessions    {status.sessions:,} registered, {status.groups:,} groups, {status.rounds:,} rounds")


def store_compact(
    seal_open: Annotated[bool, typer.Option(help="Ask running proxies to seal what they are writing first.")] = True,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Move sealed log segments into Parquet.

    Interrupted at any point, it can be run again.
    """
    from weir.store.compact import compact

    report = compact(existing_store(root, config), seal_open=seal_open)
    if report.segments == 0:
        typer.echo("nothing to compact: no segment waits")
        return
    typer.echo(
        f"compacted {report.segments:,} segments: {report.calls:,} calls, {report.bytes_in:,} bytes of log into "
        f"{report.bytes_out:,} bytes of Parquet"
        + (f"; {report.bytes_dropped:,} bytes could not be read" if report.bytes_dropped else "")
    )


def _ask(connection: duckdb.DuckDBPyConnection, query: str) -> Answer:
    """Run one SELECT. Raises QueryRefused with DuckDB's own message, for anything else too."""
    import duckdb

    from weir.scripts.query_output import Answer
    from weir.store.errors import QueryRefused
    from weir.store.views_sql import VIEWS

    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise QueryRefused(f"cannot run this: give one SELECT (views: {', '.join(VIEWS)}); the store is read-only")
        result: Any = connection.execute(statements[0])
        if any(kind == "TIMESTAMP WITH TIME ZONE" for _, kind, *_ in result.description):
            connection.abort()
            result = _without_zones(connection.sql(query))
        return Answer(columns=[name for name, *_ in result.description], rows=result.fetchall())
    except duckdb.Error as error:
        message = " ".join(str(error).split("\n\nLINE")[0].split())
        raise QueryRefused(f"{message} (views: {', '.join(VIEWS)}; columns: DESCRIBE calls)") from error


def _without_zones(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same in UTC without saying so, as all times of the views are: DuckDB needs pytz to hand out a zone."""
    columns = (
        f"#{i}::TIMESTAMP AS {_quoted(name)}" if str(kind) == "TIMESTAMP WITH TIME ZONE" else f"#{i}"
        for i, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True), 1)
    )
    return relation.project(", ".join(columns))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
