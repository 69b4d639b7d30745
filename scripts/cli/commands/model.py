"""`weir model get`: pretrained models as Hugging Face folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
