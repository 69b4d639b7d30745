"""The `weir` command: one Typer application, one function per command, in the folder `commands`.

Commands import heavy modules inside their functions, so that `weir --help` is fast. A known error ends the command with
one line on stderr: exit 2 for wrong use, 1 otherwise; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import logging
import sys
from importlib import metadata
from typing import Annotated

import typer

from weir.scripts.cli.commands import (
    bench,
    demo,
    doctor,
    engine,
    init,
    key,
    model,
    regression,
    run,
    servers,
    sft,
    sft_data,
    simulate,
    sql,
    store,
    store_upkeep,
    tasks,
    trainer,
    transfer,
    up,
)
from weir.scripts.cli.commands.judging import finalists
from weir.scripts.cli.commands.weights import ranks, stage, versions

logging.getLogger("stamina").addHandler(logging.NullHandler())  # the error after the last try is the message


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weir {metadata.version('weir-rl')}")
        raise typer.Exit


app = typer.Typer(
    name="weir",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # else `[model]` in a help text is taken for markup
    pretty_exceptions_enable=False,
)


@app.callback()
def weir(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """Record what a model does, token for token, and learn from it."""


store_app = typer.Typer(help="Maintain the store: status, compaction, garbage and repair.", no_args_is_help=True)
key_app = typer.Typer(help="Access keys for agents.", no_args_is_help=True)
versions_app = typer.Typer(callback=versions.versions, invoke_without_command=True)
tasks_app = typer.Typer(help="Check tasks, and convert other formats.", no_args_is_help=True)
model_app = typer.Typer(help="Pretrained models as folders.", no_args_is_help=True)
bench_app = typer.Typer(help="Benchmarks; the last line is JSON.", no_args_is_help=True)

app.command("up")(up.up)
app.command("init")(init.init)
app.command("demo")(demo.demo)
app.command("proxy")(servers.proxy)
app.command("engine")(engine.engine)
app.command("kernel-eval")(servers.kernel_eval)
app.command("doctor")(doctor.doctor)
app.command("run")(run.run)
app.command("eval")(run.evaluate)
app.command("sft-data")(sft_data.sft_data)
app.command("sft")(sft.sft)
app.command("regression")(regression.regression)
app.command("finalists")(finalists.finalists)
app.command("simulate")(simulate.simulate)
app.command("round")(trainer.round_)
app.command("train")(trainer.train)
app.command("ranks")(ranks.ranks)
app.command("publish")(trainer.publish)
app.command("stage")(stage.stage)
app.command("rollback")(trainer.rollback)
app.add_typer(versions_app, name="versions")
app.command("sql")(sql.sql)
app.command("export")(transfer.export)
app.command("import")(transfer.import_)
app.command("sessions")(store.sessions)
app.command("show")(store.show)
app.command("report")(store.report)
app.command("ui")(servers.page)
versions_app.command("export")(versions.export)
versions_app.command("verify")(versions.verify)
store_app.command("status")(store.store_status)
store_app.command("compact")(store_upkeep.store_compact)
store_app.command("gc")(store_upkeep.store_gc)
store_app.command("verify")(store_upkeep.store_verify)
store_app.command("forget")(store.store_forget)
store_app.command("unpin")(store.store_unpin)
bench_app.command("proxy")(bench.proxy)
bench_app.command("gate")(bench.gate)
bench_app.command("phases")(bench.phases)
bench_app.command("publish")(bench.publish)
bench_app.command("engine")(bench.engine)
bench_app.command("store")(bench.store)
bench_app.command("trainer")(bench.trainer)
bench_app.command("round")(bench.round_)
bench_app.command("scale")(bench.scale)
bench_app.command("kernel-eval")(bench.kernel_eval)
bench_app.command("ui")(bench.ui)
key_app.command("add")(key.add)
key_app.command("list")(key.list_)
key_app.command("revoke")(key.revoke)
tasks_app.command("check")(tasks.check)
tasks_app.command("import")(tasks.import_)
model_app.command("get")(model.get)
model_app.command("check")(model.check)
app.add_typer(store_app, name="store")
app.add_typer(model_app, name="model")
app.add_typer(tasks_app, name="tasks")
app.add_typer(key_app, name="key")
app.add_typer(bench_app, name="bench")


def main() -> None:
    """Run the command line; a known error is one line: what failed, why, and what to do."""
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
