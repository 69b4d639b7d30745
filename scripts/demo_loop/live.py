"""The demo under a controller: three engines and a training slot share two cores, each bound to one of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from weir.scripts.launch.settings import Settings
from weir.scripts.live.command import rollout_options
from weir.scripts.live.controller import Controller, Report

AHEAD_GROUPS = 8  # judged while engines generate
LOG = "controller.log"


def cluster_toml(first_engine: int) -> str:
    """The sections of weir.toml that the demo adds: the first core only generates, the second one does both."""
    cores = sorted(os.sched_getaffinity(0))
    generates, both = cores[0], cores[1 % len(cores)]
    members = [("only", '["rollout"]', generates), ("both-1", '["rollout", "train"]', both)]
    members.append(("both-2", '["rollout", "train"]', both))
    tables = "".join(
        f'[[cluster.members]]\nname = "{name}"\nurl = "http://127.0.0.1:{first_engine + number}"\ntags = {tags}\n'
        f'kind = "core"\ncores = [{core}]\n\n'
        for number, (name, tags, core) in enumerate(members)
    )
    return f"judge_ahead_groups = {AHEAD_GROUPS}\n\n[cluster]\nmax_staleness = 1\ntrain_members = 2\n\n{tables}"


def run_live(settings: Settings, folder: Path, seed: int, rounds: int, on_round: Callable[[int], None]) -> Report:
    """Run so many rounds."""
    log = (settings.store.folder / "logs" / LOG).open("w")
    options = rollout_options(settings, folder / "weir.toml", folder / "tasks", split="train", seed=seed, changes={})
    controller = Controller(settings, folder / "weir.toml", options, Console(file=log, width=200), on_round)
    with log:
        return asyncio.run(controller.run(rounds))
