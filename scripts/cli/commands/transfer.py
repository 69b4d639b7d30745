"""`weir export`, `weir import`: trajectories to other trainers, and from other recorders."""

from __future__ import annotations

import datetime
import enum
import socket
from collections.abc import Callable, Iterable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weir.scripts.cli.commands.sql import ParamOption, read_parameters
from weir.scripts.launch.settings import ConfigOption, RootOption, existing_store, load_settings

if TYPE_CHECKING:
    from weir.store.config import StoreConfig
    from weir.store.query.trajectories import Choice, Trajectory
    from weir.store.transfer.export_files import Provenance

    Writer = Callable[[Iterable[Trajectory], Path, Provenance], None]


class Form(enum.StrEnum):
    """Formats of an export, by their reader."""

    TRL = "trl"
    VERL = "verl"
    SLIME = "slime"
    JSONL = "jsonl"
    PARQUET = "parquet"


class Targets(enum.StrEnum):
    """Which branches train on a call that several share; the names of the store's policies."""

    FIRST = "first"
    LAST = "last"
    LONGEST = "longest"
    EVERY = "every"


NEEDS_REWARD = (Form.TRL, Form.VERL, Form.SLIME)


def export(
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    format: Annotated[Form, typer.Option("--format", "-f", help="The format, by its reader.")] = Form.JSONL,
    where: Annotated[str, typer.Option(help="A condition in SQL on the view trajectories.")] = "true",
    param: ParamOption = None,
    policy: Annotated[
        Targets, typer.Option(help="Which branches of a session train on a shared call.")
    ] = Targets.LONGEST,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Write branches as training sequences.

    For TRL, verl and slime, or in Weir's own form as JSON Lines or Parquet. Its groups stay in the store until the file
    is whole. See docs/exports.md.
    """
    from weir.store.catalog.catalog import Catalog
    from weir.store.catalog.pins import pinned
    from weir.store.query.question import asking
    from weir.store.query.trajectories import Policy, choose, chosen_groups, read_chosen
    from weir.store.reader import connect

    store = existing_store(root, config)
    parameters = read_parameters(param or [])
    catalog = Catalog.open(store)
    read_us = catalog.now_us()
    with closing(catalog), connect(store) as connection, asking(connection):
        choice = choose(connection, where, parameters, Policy(policy), with_reward=format in NEEDS_REWARD)
        query = {"format": format.value, "where": where, "parameters": dict(parameters), "policy": policy.value}
        with pinned(catalog, _pin_name(output), chosen_groups(connection), read_us=read_us):
            _writer(format)(read_chosen(connection), output, _provenance(store, query, choice))
    left_out = "".join(f"; left out {count:,} {reason}" for reason, count in choice.left_out.items())
    typer.echo(f"wrote {choice.count:,} trajectories to {output}{left_out}", err=True)


def _pin_name(output: Path) -> str:
    """The name under which an export of this file pins its groups: the same when it is run again."""
    return f"export to {socket.gethostname()}:{output.absolute()}"


def import_(
    file: Annotated[Path, typer.Argument(help="JSON Lines, as `weir export --format jsonl` writes them.")],
    weight_version: Annotated[
        int | None, typer.Option(min=0, help="Weight version of tokens whose line gives none.")
    ] = None,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Import trajectories into the store.

    All of them, or none where a line cannot be read. The same file again changes nothing.
    """
    from weir.scripts.launch.errors import UsageError
    from weir.store.transfer.import_file import import_jsonl

    if not file.is_file():
        raise UsageError(f"there is no file {file} to import")
    store = load_settings(config).store.at(root)
    report = import_jsonl(store, file, weight_version)
    typer.echo(
        f"imported {report.trajectories:,} trajectories: {report.calls:,} calls of {report.sessions:,} sessions "
        f"in {report.groups:,} groups"
        + (f"; {report.known_calls:,} of these calls were there already" if report.known_calls else "")
    )


def _writer(form: Form) -> Writer:
    from weir.scripts.cli.report.slime import write_slime
    from weir.store.transfer import export_files

    writers: dict[Form, Writer] = {
        Form.TRL: export_files.write_trl,
        Form.VERL: export_files.write_verl,
        Form.SLIME: write_slime,
        Form.JSONL: export_files.write_jsonl,
        Form.PARQUET: export_files.write_parquet,
    }
    return writers[form]


def _provenance(store: StoreConfig, query: dict[str, Any], choice: Choice) -> Provenance:
    """Where a file comes from, and the query that made it."""
    from weir.store.records.call_record import SCHEMA_VERSION
    from weir.store.transfer.export_files import FORM

    return {
        "form": FORM,
        "weir": version("weir-rl"),
        "record_schema": SCHEMA_VERSION,
        "store": str(store.root),
        "exported_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **query,
        "trajectories": choice.count,
        "left_out": {reason.value: count for reason, count in choice.left_out.items()},
    }
