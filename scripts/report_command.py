"""`weir report`: the store as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"),
    config: Annotated[Path | None, typer.Option(help="The run's weir.toml; ./weir.toml where there is one.")] = None,
) -> None:
    """Write a self-contained HTML report: reward, correctness and faults by version, time by phase of each round."""
    from weir.scripts.report import write_report
    from weir.scripts.settings import load_settings

    typer.echo(write_report(load_settings(config).store, out))
