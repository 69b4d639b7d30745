"""The `weir` command: one Typer application, one function for each command, in the files beside this one.

Commands import what is heavy inside themselves, so that `weir --help` answers at once. An error that a part knows ends
the command with one line on stderr: exit 2 for wrong use, 1 otherwise; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer

from weir.scripts import (
    bench_command,
    demo_command,
    doctor_command,
    engine_command,
    exchange_commands,
    kernel_eval_command,
    key_command,
    proxy_command,
    regression_command,
    report_command,
    run_command,
    sft_command,
    sft_data_command,
    sql_command,
    store_commands,
    tasks_command,
    trainer_commands,
    up_command,
    upkeep_commands,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weir {metadata.version('weir-rl')}")
        raise typer.Exit


app = typer.Typer(
    name="weir",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # else `[model]` in a help text is markup, and vanishes
    pretty_exceptions_enable=False,
)


@app.callback()
def weir(
    version: Annotated[
        bool, typer.Option("--version", help="Say which Weir this is, and end.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """Record what a model does, token for token, and learn from it."""


store_app = typer.Typer(help="Look after the store: status, compaction, garbage and repair.", no_args_is_help=True)
key_app = typer.Typer(help="Keys that open the proxy to agents.", no_args_is_help=True)
tasks_app = typer.Typer(help="Which tasks can be judged; other forms of tasks.", no_args_is_help=True)
bench_app = typer.Typer(help="Measure a part; the last line is JSON.", no_args_is_help=True)

app.command("up")(up_command.up)
app.command("demo")(demo_command.demo)
app.command("proxy")(proxy_command.proxy)
app.command("engine")(engine_command.engine)
app.command("kernel-eval")(kernel_eval_command.kernel_eval)
app.command("doctor")(doctor_command.doctor)
app.command("run")(run_command.run)
app.command("sft-data")(sft_data_command.sft_data)
app.command("sft")(sft_command.sft)
app.command("regression")(regression_command.regression)
app.command("round")(trainer_commands.round_)
app.command("publish")(trainer_commands.publish)
app.command("rollback")(trainer_commands.rollback)
app.command("versions")(trainer_commands.versions)
app.command("sql")(sql_command.sql)
app.command("export")(exchange_commands.export)
app.command("import")(exchange_commands.import_)
app.command("sessions")(store_commands.sessions)
app.command("show")(store_commands.show)
app.command("report")(report_command.report)
store_app.command("status")(store_commands.store_status)
store_app.command("compact")(upkeep_commands.store_compact)
store_app.command("gc")(upkeep_commands.store_gc)
store_app.command("verify")(upkeep_commands.store_verify)
store_app.command("forget")(store_commands.store_forget)
bench_app.command("proxy")(bench_command.proxy)
bench_app.command("gate")(bench_command.gate)
bench_app.command("engine")(bench_command.engine)
bench_app.command("store")(bench_command.store)
bench_app.command("trainer")(bench_command.trainer)
bench_app.command("round")(bench_command.round_)
bench_app.command("kernel-eval")(bench_command.kernel_eval)
key_app.command("add")(key_command.add)
key_app.command("list")(key_command.list_)
key_app.command("revoke")(key_command.revoke)
tasks_app.command("check")(tasks_command.check)
tasks_app.command("import")(tasks_command.import_)
app.add_typer(store_app, name="store")
app.add_typer(tasks_app, name="tasks")
app.add_typer(key_app, name="key")
app.add_typer(bench_app, name="bench")


def main() -> None:
    """Run the command line; every known error is one line that says what, why and what next."""
    try:
        app()
    except Exception as error:
        exit_code = getattr(error, "exit_code", None)
        if exit_code is None:
            raise
        print(f"weir: {error}", file=sys.stderr)
        sys.exit(exit_code)


if __name__ == "__main__":
    main()
