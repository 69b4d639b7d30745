"""`weir doctor`: checks this machine, and an upstream by real calls."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.settings import ConfigOption, load_settings, with_flags

if TYPE_CHECKING:
    from weir.proxy.config import ProxyConfig
    from weir.scripts.cli.doctor.finding import Finding
    from weir.scripts.launch.settings import Settings


def doctor(
    config: ConfigOption = None,
    upstream: Annotated[str | None, typer.Option(help="URL of a router, an engine or another host to certify.")] = None,
    model: Annotated[str | None, typer.Option(help="The model's name there; default: model.name.")] = None,
    level: Annotated[str | None, typer.Option(help="Capture level that it must support; default: proxy.level.")] = None,
    leave_engines: Annotated[
        bool, typer.Option("--leave-engines", help="Do not try abort, pause and continue: an update is under way.")
    ] = False,
    exactness: Annotated[
        str | None, typer.Option(metavar="URL", help="Compare the logprobs of this engine with the trainer's own.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Folder that the engine serves; default: the newest version, else model.path.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array instead of a table.")] = False,
) -> None:
    """Check this machine and an upstream.

    The upstream gets real calls of a few tokens; its engines are paused and continued for a moment. With --exactness an
    engine answers eight fixed prompts, and the trainer computes the logprobs of the same tokens: how far they are apart
    is what quantised weights, caches and other settings of the engine cost. Exits with 1 where something required is
    missing.
    """
    from weir.scripts.cli.doctor.finding import Verdict
    from weir.scripts.cli.doctor.machine import machine_findings

    settings = load_settings(config)
    proxy = with_flags(settings.proxy, {"level": level}, "weir doctor")
    findings = list(machine_findings(settings))
    url = upstream or settings.proxy.upstream_url
    if url is not None:
        findings += asyncio.run(_certified(proxy, url, model or settings.model.name, leave_engines))
    if exactness is not None:
        findings += _compared(settings, exactness, weights)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    else:
        _print(findings)
    missing = [finding.what for finding in findings if finding.verdict is Verdict.MISSING]
    if missing:
        typer.echo(f"required and missing: {', '.join(missing)}", err=True)
        raise typer.Exit(1)


async def _certified(config: ProxyConfig, url: str, model: str, leave_engines: bool) -> list[Finding]:
    from weir.scripts.cli.doctor.upstream import upstream_findings

    return [finding async for finding in upstream_findings(config, url, model, leave_engines=leave_engines)]


def _compared(settings: Settings, url: str, weights: Path | None) -> list[Finding]:
    from weir.scripts.cli.doctor.exactness import exactness_findings
    from weir.scripts.launch.fleet import found_model

    folder = weights or found_model(settings)
    if folder is None or not (folder / "tokenizer.json").exists():
        what = "no weights to compare with" if folder is None else f"{folder} holds no tokenizer.json"
        raise typer.BadParameter(f"{what}; set model.path, or give --weights FOLDER", param_hint="--exactness")
    return exactness_findings(url, folder, settings.trainer.precision, adapter_name=settings.proxy.adapter_name)


def _print(findings: Sequence[Finding]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    colours = {"ok": "green", "warning": "yellow", "missing": "red"}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("", "what", "", "seen"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        verdict = f"[{colours[finding.verdict]}]{finding.verdict.value}[/]"
        text = f"{finding.seen}; {finding.advice}" if finding.advice else finding.seen
        table.add_row(finding.about, finding.what, verdict, escape(text))
    Console().print(table)
