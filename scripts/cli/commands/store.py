"""`weir sessions`, `weir show`, `weir report`, `weir store status`, `weir store forget`: inspecting the store.

The store is that of weir.toml, or the one given by `--root`. Results go to stdout, remarks to stderr.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.settings import ConfigOption, RootOption, existing_store


def sessions(
    group: Annotated[str | None, typer.Option(help="Only sessions of this group (or id prefix).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest sessions.")] = 50,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """List the latest sessions.

    With their calls, turns, tokens, reward, weight versions, and status.
    """
    from weir.scripts.cli.terminal.session_tree import print_sessions
    from weir.store.reader import connect

    with connect(existing_store(root, config)) as connection:
        print_sessions(connection, group, limit)


def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A session or group id, or a prefix of one.")
    ] = None,
    call: Annotated[str | None, typer.Option(help="Instead: one whole call, by its id.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Print every message and answer whole.")] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="With --call: its tokens and their logprobs.")] = False,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Show a session as a tree of calls, or one whole call.

    A group's name shows all its sessions. Turns stand below each other; branches (retries, forks) are indented;
    sub-agents and compactions are separate trees.
    """
    from weir.scripts.cli.terminal.call_view import print_call
    from weir.scripts.cli.terminal.session_tree import print_trees
    from weir.store.reader import connect

    if (name is None) == (call is None):
        raise UsageError("name a session or group, or a call by --call; `weir sessions` lists sessions")
    with connect(existing_store(root, config)) as connection:
        if call is not None:
            print_call(connection, call, with_tokens=tokens)
        elif name is not None:
            print_trees(connection, name, whole_text=full)


def store_status(root: RootOption = None, config: ConfigOption = None) -> None:
    """Show the contents of the store.

    Log segments, Parquet files, calls, bytes, and unreadable parts.
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
    if status.behind_s is not None:
        typer.echo(f"            the oldest sealed segment was begun {status.behind_s:,.0f} s ago")
    dropped = f"{status.frames_dropped:,} frames, {status.bytes_dropped:,} bytes"
    typer.echo(f"dropped     {dropped} that no record could be read from")
    for segment_id, reason in status.damaged:
        typer.echo(f"            {segment_id}: {reason}")
    for row in status.unshared:
        typer.echo(
            f"            {row.writer}: others can read it up to {_time(row.shared_us)}, seen {_time(row.seen_us)}"
        )
    for proxy in status.proxies:
        typer.echo(
            f"proxy       {proxy.url} ({proxy.writer}): {proxy.failed or 0:,} records not taken, "
            f"{proxy.unrecorded or 0:,} answers unrecorded, {proxy.waiting or 0:,} records waiting"
        )
        if proxy.failure is not None:
            typer.echo(f"            {proxy.failure}")
    for pin in status.pins:
        typer.echo(f"pinned      {pin.num_groups:,} groups by {pin.name}, {pin.holder}, {_time(pin.pinned_us)}")
    typer.echo(f"sessions    {status.sessions:,} registered, {status.groups:,} groups, {status.rounds:,} rounds")


def store_forget(
    writer: Annotated[str, typer.Argument(help="A log, as `weir store status` names it.")],
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Give up the log of a machine that never comes back.

    Its calls that no other machine can read are lost, and rounds may take the groups that waited for them.
    """
    from weir.store.catalog.catalog import Catalog
    from weir.store.catalog.shared_segments import forget_log_writer, log_writers

    catalog = Catalog.open(existing_store(root, config))
    try:
        known = [row.writer for row in log_writers(catalog)]
        if writer not in known:
            raise UsageError(f"there is no log {writer!r} to wait for; there are: {', '.join(known) or 'none'}")
        forget_log_writer(catalog, writer)
    finally:
        catalog.close()
    typer.echo(f"{writer}: forgotten")


def store_unpin(
    name: Annotated[str, typer.Argument(help="A pin, as `weir store status` names it.")],
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Drop the pin of a consumer that never comes back.

    Retention may remove its groups again. A consumer that is run again needs no unpinning: it takes its pin over.
    """
    from weir.store.catalog.catalog import Catalog
    from weir.store.catalog.pins import acknowledge, pins

    catalog = Catalog.open(existing_store(root, config))
    try:
        known = [pin.name for pin in pins(catalog)]
        if not acknowledge(catalog, name):
            raise UsageError(f"there is no pin {name!r}; there are: {', '.join(known) or 'none'}")
    finally:
        catalog.close()
    typer.echo(f"{name}: dropped")


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def report(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"),
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Write an HTML report of the store, one self-contained file.

    Reward, correctness and faults by weight version, and the time of each round by phase. It needs no network.
    """
    from weir.scripts.cli.report.html import write_report

    typer.echo(write_report(existing_store(root, config), out))
