"""`weir store compact`, `weir store gc`, `weir store verify`: maintenance of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.settings import ConfigOption, RootOption, existing_store, load_settings

if TYPE_CHECKING:
    from weir.store.maintenance.compact import CompactReport
    from weir.store.maintenance.repair import Repair
    from weir.store.maintenance.retention import Retirement


def store_compact(
    seal_open: Annotated[bool, typer.Option(help="First ask running proxies to seal their open segments.")] = True,
    every: Annotated[float | None, typer.Option(min=1, metavar="SECONDS", help="Repeat until stopped.")] = None,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Move sealed log segments into Parquet.

    Small files are merged, retention removes old groups, and garbage is deleted. It can be interrupted at any point and
    run again. `weir up` runs it periodically.
    """
    from weir.scripts.launch.notices import notify
    from weir.scripts.launch.stop_signal import StopSignal
    from weir.store.maintenance.compact import compact
    from weir.store.maintenance.upkeep import keep_up

    if every is None:
        typer.echo(_compacted(compact(existing_store(root, config), seal_open=seal_open)))
        return
    store = load_settings(config).store.at(root)  # it may begin before the first call makes the store
    stop = StopSignal()

    def tell(report: CompactReport) -> None:
        if report.segments or report.files_merged or report.retirement.groups:
            notify(_compacted(report))

    keep_up(
        store,
        every,
        stop.wait,
        tell,
        lambda error: notify(f"cannot compact, and will try again: {error}", err=True),
    )


def _compacted(report: CompactReport) -> str:
    done = []
    if report.segments:
        done.append(
            f"compacted {report.segments:,} segments: {report.calls:,} calls, {report.bytes_in:,} bytes of log into "
            f"{report.bytes_out:,} bytes of Parquet"
        )
    if report.bytes_dropped:
        done.append(f"{report.bytes_dropped:,} bytes could not be read")
    if report.files_merged:
        done.append(f"merged {report.files_merged:,} small files")
    if report.retirement.groups:
        done.append(f"by retention {_retired(report.retirement)}")
    return "; ".join(done) or "nothing to compact: no segment waits"


def _retired(done: Retirement) -> str:
    return f"{done.groups:,} groups with {done.calls:,} calls left the store"


def store_gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete what no reader needs.

    Groups beyond the retention settings, compacted segments and replaced files after their grace, and leftovers of
    crashes. Whatever an open connection reads is kept until it is closed.
    """
    from weir.store.maintenance.upkeep import collect_garbage, planned_garbage

    store = existing_store(root, config)
    retirement, garbage = planned_garbage(store) if dry_run else collect_garbage(store)
    if dry_run:
        typer.echo("nothing was changed; this would be done now:")
    if retirement.groups:
        typer.echo(_retired(retirement))
    for reason, count in sorted(retirement.needed.items()):
        typer.echo(f"{count:,} groups as old stay: {reason}")
    typer.echo(
        f"deleted {garbage.segments:,} segments, {garbage.files:,} replaced files and {garbage.leftovers:,} leftovers "
        f"of crashes: {garbage.bytes:,} bytes"
    )
    if garbage.waiting:
        typer.echo(f"{garbage.waiting:,} replaced files wait for readers: {', '.join(garbage.readers)}")


def store_verify(
    fix: Annotated[bool, typer.Option("--repair", help="Rebuild what can be rebuilt; nothing is destroyed.")] = False,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Read everything and report damage.

    Checks every segment, every page, every call against its hash, the catalog against the folder, and clocks that
    jumped. Exits with 1 where something is damaged and was not repaired.
    """
    from weir.store.maintenance.verify import verify

    verdict = verify(existing_store(root, config), fix=fix)
    for finding in verdict.findings:
        typer.echo(finding)
    if verdict.repair is not None:
        typer.echo(_repair_lines(verdict.repair))
        return
    typer.echo(f"{verdict.calls:,} calls read: " + ("the store is sound" if verdict.is_sound else "see above"))
    if not verdict.is_sound:
        typer.echo("weir store verify --repair rebuilds what can be rebuilt, and sets the rest aside", err=True)
        raise typer.Exit(1)


def _repair_lines(done: Repair) -> str:
    lines = [
        f"repaired: {done.adopted:,} calls taken in from files that the catalog did not name, {done.salvaged:,} "
        f"salvaged from behind bad frames, {done.reopened:,} segments compacted again; {done.left_out:,} calls could "
        "not be read from where they were",
        *([f"objects put again from copies: {done.restored:,}"] if done.restored else []),
        *([f"segments given up, of which nothing is left: {done.given_up:,}"] if done.given_up else []),
        *(f"set aside: {name}" for name in done.quarantined),
    ]
    return "\n".join(lines)
