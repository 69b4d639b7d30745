"""`weir sql`: one query to the store, or a shell at a terminal. Answers go to stdout, remarks to stderr."""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.settings import ConfigOption, RootOption, existing_store, load_settings

if TYPE_CHECKING:
    import duckdb

    from weir.store.query.question import Parameters


ParamOption = Annotated[
    list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE", help="A value for $NAME in the query.")
]


class Format(enum.StrEnum):
    """Formats of an answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def sql(
    query: Annotated[
        str | None, typer.Argument(help="One SELECT; '-' reads stdin. Without one, a shell at a terminal.")
    ] = None,
    param: ParamOption = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="Format of the answer.")] = Format.TABLE,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for the answer; default: stdout.")] = None,
    timeout_s: Annotated[
        float | None,
        typer.Option(min=0.001, help="Time limit of the query in seconds; default: store.query_timeout_s."),
    ] = None,
    memory_mb: Annotated[
        int | None, typer.Option(min=16, help="Memory limit of the query; default: store.query_memory_mb.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of the tokenizer for texts of tokens; default: model.path of weir.toml.")
    ] = None,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Query the store in SQL.

    DuckDB's SQL over the views of docs/sql.md: calls, labels, tokens, sessions, branches, groups, rewards, evaluations,
    rounds, versions and more.
    """
    from weir.scripts.cli.terminal.interrupt import interruptible
    from weir.scripts.cli.terminal.limits import contained
    from weir.store.query.question import asking
    from weir.store.reader import connect

    store = existing_store(root, config)
    limits = {"query_timeout_s": timeout_s, "query_memory_mb": memory_mb}
    store = store.model_copy(update={name: value for name, value in limits.items() if value is not None})
    parameters = read_parameters(param or [])
    folder = tokenizer or load_settings(config).model.path
    if query is None and sys.stdin.isatty():
        from weir.scripts.cli.terminal.sql_shell import run_shell

        return run_shell(store, folder)
    query = sys.stdin.read() if query is None or query == "-" else query
    with (
        connect(store, folder) as connection,
        contained(store.query_memory_mb, store.query_timeout_s),
        interruptible(connection),
        asking(connection, store.query_timeout_s),
    ):
        _answer(connection, query, parameters, format, output)


def read_parameters(given: list[str]) -> Parameters:
    """Parse `name=value` pairs: numbers, true, false, null and quoted strings as in JSON, anything else as text."""
    parameters: dict[str, object] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--param {pair}: expected NAME=VALUE, for $NAME in the query")
        parameters[name] = _value(value)
    return parameters


def _value(text: str) -> object:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return text if isinstance(value, list | dict) else value


def _answer(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Parameters, form: Format, output: Path | None
) -> None:
    from weir.scripts.cli.terminal.result_output import print_answer, write_parquet
    from weir.store.query.question import answer_batches, answer_rows
    from weir.store.transfer.output_file import output_file

    if form is Format.PARQUET:
        if output is None:
            raise UsageError("Parquet cannot be printed: name a file for it, --output answer.parquet")
        typer.echo(f"{write_parquet(answer_batches(connection, query, parameters), output):,} rows", err=True)
    elif output is None:
        print_answer(answer_rows(connection, query, parameters), form.value, sys.stdout)
    else:
        answer = answer_rows(connection, query, parameters)
        with output_file(output) as aside, open(aside, "w", newline="") as file:
            print_answer(answer, form.value, file)
