"""`weir report`: the store as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weir.scripts.launch.settings import ConfigOption, RootOption, existing_store


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
