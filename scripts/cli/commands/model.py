"""`weir model get|check`: pretrained models as Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from weir.scripts.launch.settings import ConfigOption, load_settings


def get(
    source: Annotated[str, typer.Argument(help="smollm2-135m, or hf:ORG/NAME[@REVISION].")],
    folder: Annotated[Path, typer.Argument(help="Where to put it: a new or empty folder.")],
    config_only: Annotated[
        bool, typer.Option("--config-only", help="Leave the weights out: enough for `weir round --plan`.")
    ] = False,
) -> None:
    """Fetch a pretrained model and write it as a Hugging Face folder.

    The folder appears when it is complete. An interrupted command continues when it is run again; where the folder is
    there already, its files are verified.
    """
    from weir.scripts.models.sources import get_model

    made = get_model(source, folder, lambda line: typer.echo(line, err=True), config_only=config_only)
    typer.echo(f"{folder}: {source}{'' if made else ', verified: it was there already'}")


def check(
    folder: Annotated[Path, typer.Argument(help="A Hugging Face folder.")],
    tokens: Annotated[int, typer.Option(min=1, help="Tokens in the KV cache, all requests together.")] = 65_536,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens in one micro-batch of training.")] = 8192,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: ConfigOption = None,
) -> None:
    """Report what a model folder holds and lacks, and the memory that it needs.

    Exits with 1 if Weir cannot use it. Weights are checked by their headers; nothing is loaded.
    """
    from weir.scripts.models.check import check_model, report_lines

    report = check_model(folder, load_settings(config).proxy, tokens=tokens, batch_tokens=batch_tokens)
    typer.echo(json.dumps(report.as_json()) if as_json else "\n".join(report_lines(report)))
    if report.problems:
        raise typer.Exit(1)
