"""`weir sft`: the supervised cold start, with an optional regression run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weir.scripts.cli.commands import regression
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.resolve import chat_renderer, first_weights, see_training_gpus
from weir.scripts.launch.settings import ConfigOption, load_settings, with_flags

if TYPE_CHECKING:
    from weir.scripts.launch.settings import Settings
    from weir.trainer.sft.cold_start import SftReport


ModelOption = Annotated[Path | None, typer.Option(help="Hugging Face folder to start from; default: [model] path.")]
ValidationOption = Annotated[
    float | None, typer.Option(help="Share of the conversations held out and scored after each epoch.")
]
ProcessesOption = Annotated[int | None, typer.Option(help="Training processes, sharded by FSDP2; one per GPU.")]
RecomputeOption = Annotated[
    bool, typer.Option("--gradient-checkpointing", help="Recompute activations to save memory.")
]
LoraRankOption = Annotated[int | None, typer.Option(help="Train adapters of this rank, and merge them.")]
LoraAlphaOption = Annotated[float | None, typer.Option(help="With --lora-rank: weight of the adapters.")]
LoraTargetOption = Annotated[
    list[str] | None, typer.Option(help="With --lora-rank: a linear layer with adapters; repeat it for more.")
]
TasksOption = Annotated[
    Path | None, typer.Option(help="Tasks that first and new weights answer afterwards; see weir regression.")
]
EngineOption = Annotated[
    str | None, typer.Option(help="With --tasks: URL of an idle engine; default: an embedded one is started.")
]
FailOption = Annotated[bool, typer.Option("--fail-on-regression", help="With --tasks: exit with 1 where a share fell.")]


def sft(
    data: Annotated[Path, typer.Option(help='JSON Lines of {"messages": [...]} or {"text": "..."}.')],
    out: Annotated[Path, typer.Option(help="Version folder to write; it must not exist.")],
    model: ModelOption = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Conversations per optimiser step.")] = None,
    lr: Annotated[float | None, typer.Option(help="AdamW's highest learning rate.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longer sequences are left out.")] = None,
    validation_share: ValidationOption = None,
    processes: ProcessesOption = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16.")] = None,
    gradient_checkpointing: RecomputeOption = False,
    lora_rank: LoraRankOption = None,
    lora_alpha: LoraAlphaOption = None,
    lora_target: LoraTargetOption = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the order of the data.")] = None,
    version: Annotated[int | None, typer.Option(help="Weight version of the result.")] = None,
    tasks: TasksOption = None,
    engine: EngineOption = None,
    fail_on_regression: FailOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one line of JSON.")] = False,
    config: ConfigOption = None,
) -> None:
    """Supervised cold start: train on conversations.

    Trains on the assistant's tokens only, rendered as the proxy renders them; on all tokens of plain texts. With
    --tasks a short regression run follows.
    """
    _check_flags(tasks, engine, fail_on_regression, lora_rank, lora_alpha, lora_target)
    settings = load_settings(config)
    first = first_weights(settings, model)
    given = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "max_tokens": max_tokens,
        "validation_share": validation_share,
        "processes": processes,
        "precision": precision,
        "gradient_checkpointing": gradient_checkpointing or None,
        "lora_rank": lora_rank,
        "lora_alpha": lora_alpha,
        "lora_targets": lora_target or None,
        "seed": seed,
        "version": version,
    }
    setup = regression.prepare(settings, config, tasks, engine, {}) if tasks is not None else None
    see_training_gpus(settings)
    report = _train(settings, given, data, first, out, quiet=as_json)
    typer.echo(_as_json(report) if as_json else _describe(report))
    if setup is not None:
        regression.report(regression.run(setup, first, out), out, fail=fail_on_regression)


def _train(
    settings: Settings, given: Mapping[str, Any], data: Path, first: Path, out: Path, *, quiet: bool
) -> SftReport:
    from rich.console import Console

    from weir.trainer.settings.config import SftConfig
    from weir.trainer.sft.cold_start import run_sft

    config, renderer = with_flags(SftConfig(), given, "weir sft"), chat_renderer(first, settings)
    return run_sft(config, data=data, model=first, out=out, renderer=renderer, console=Console(stderr=quiet))


def _check_flags(
    tasks: Path | None,
    engine: str | None,
    fail_on_regression: bool,
    lora_rank: int | None,
    lora_alpha: float | None,
    lora_target: list[str] | None,
) -> None:
    """Raise UsageError for a flag that has no effect without another one."""
    if tasks is None and (engine is not None or fail_on_regression):
        flag = "--fail-on-regression" if engine is None else "--engine"
        raise UsageError(f"{flag} requires --tasks; without it first and new weights are not compared")
    if lora_rank is None and (lora_alpha is not None or lora_target):
        raise UsageError(f"{'--lora-alpha' if lora_alpha is not None else '--lora-target'} requires --lora-rank")


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
