"""`weir sft`: the supervised cold start, with an optional regression run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.cli.commands import regression
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.resolve import chat_renderer, first_weights, see_training_gpus
from weir.scripts.launch.settings import ConfigOption, load_settings, with_flags

if TYPE_CHECKING:
    from weir.trainer.sft.cold_start import SftReport


def sft(
    data: Annotated[Path, typer.Option(help='JSON Lines of {"messages": [...]} or {"text": "..."}.')],
    out: Annotated[Path, typer.Option(help="Version folder to write; it must not exist.")],
    model: Annotated[
        Path | None, typer.Option(help="Hugging Face folder to start from; default: [model] path.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Conversations per optimiser step.")] = None,
    lr: Annotated[float | None, typer.Option(help="AdamW's highest learning rate.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longer sequences are left out.")] = None,
    validation_share: Annotated[
        float | None, typer.Option(help="Share of the conversations held out and scored after each epoch.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the order of the data.")] = None,
    version: Annotated[int | None, typer.Option(help="Weight version of the result.")] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Tasks that first and new weights answer afterwards; see weir regression.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="With --tasks: URL of an idle engine; default: an embedded one is started.")
    ] = None,
    fail_on_regression: Annotated[
        bool, typer.Option("--fail-on-regression", help="With --tasks: exit with 1 where a share fell.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one line of JSON.")] = False,
    config: ConfigOption = None,
) -> None:
    """Supervised cold start: train on conversations.

    Trains on the assistant's tokens only, rendered as the proxy renders them; on all tokens of plain texts. With
    --tasks a short regression run follows.
    """
    if tasks is None and (engine is not None or fail_on_regression):
        flag = "--fail-on-regression" if engine is None else "--engine"
        raise UsageError(f"{flag} requires --tasks; without it first and new weights are not compared")
    settings = load_settings(config)
    first = first_weights(settings, model)
    given = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "max_tokens": max_tokens,
        "validation_share": validation_share,
        "seed": seed,
        "version": version,
    }
    setup = regression.prepare(settings, config, tasks, engine, {}) if tasks is not None else None
    see_training_gpus(settings)
    from rich.console import Console

    from weir.trainer.settings.config import SftConfig
    from weir.trainer.sft.cold_start import run_sft

    sft_config = with_flags(SftConfig(), given, "weir sft")
    report = run_sft(
        sft_config,
        data=data,
        model=first,
        out=out,
        renderer=chat_renderer(first, settings),
        console=Console(stderr=as_json),
    )
    typer.echo(_as_json(report) if as_json else _describe(report))
    if setup is not None:
        regression.report(regression.run(setup, first, out), out, fail=fail_on_regression)


def _as_json(report: SftReport) -> str:
    import json

    return json.dumps({"out": str(report.version.path), **report.figures, "seconds": report.seconds}, sort_keys=True)


def _describe(report: SftReport) -> str:
    held_back = " → ".join(f"{loss:.3f}" for loss in report.validation_losses)
    return (
        f"{report.version.path}: version {report.version.manifest.version}, {report.num_rows} rows "
        f"({report.num_too_long} too long), loss {report.losses[0]:.3f} → {report.losses[-1]:.3f}, "
        + (f"of {report.num_held_back} rows held back {held_back}, " if held_back else "")
        + f"{report.seconds:.1f} s\n{_health(report)}"
    )


def _health(report: SftReport) -> str:
    found = report.health
    by_epoch = " → ".join(f"{loss:.3f}" for loss in found.epoch_losses)
    text = (
        f"{found.valid_token_share:.1%} of {found.num_tokens} tokens are targets; rows of {found.length_min} to "
        f"{found.length_max} tokens, median {found.length_median:g}, 95 % up to {found.length_p95:g}; loss by epoch "
        f"{by_epoch}"
    )
    if found.rows_exact or found.rows_rendered_again:
        text += f"; {found.rows_exact} lines with their recorded ids, {found.rows_rendered_again} rendered again"
    return text + (f"; {found.texts_cut} texts cut into pieces" if found.texts_cut else "")
