"""`weir train`: a controller that runs until it is stopped, and a line on what it did."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console

from weir.cluster.timeline import BUSY
from weir.scripts.launch.agents import tasks_of_split
from weir.scripts.launch.notices import Notices
from weir.scripts.launch.resolve import agents_config, first_weights
from weir.scripts.launch.settings import Settings
from weir.scripts.live.controller import Controller, Report
from weir.scripts.live.rollouts import RolloutOptions


def run_controller(
    settings: Settings,
    config_path: Path | None,
    tasks: Path,
    *,
    split: str,
    seed: int,
    rounds: int | None,
    changes: dict[str, Any],
) -> str:
    """Run until so many rounds are trained, or until SIGTERM or Ctrl-C. Raises `UsageError` for wrong settings."""
    from weir.agents.agent_task import load_all_tasks

    tasks_of_split(load_all_tasks(tasks), split, tasks)  # each of these is refused here, not in a process beside
    agents_config(settings, changes)
    first_weights(settings, None)
    options = rollout_options(settings, config_path, tasks, split=split, seed=seed, changes=changes)
    controller = Controller(settings, config_path, options, Console(file=cast(IO[str], Notices(sys.stderr))))
    report = asyncio.run(_until_stopped(controller, rounds))
    return "stopped; the next start goes on from here" if report is None else describe(report)


def rollout_options(
    settings: Settings, config_path: Path | None, tasks: Path, *, split: str, seed: int, changes: dict[str, Any]
) -> RolloutOptions:
    """What agents run over; the journal of the groups that have ended is in the store."""
    return RolloutOptions(
        config=config_path,
        tasks=tasks.absolute(),
        state=settings.store.folder / "runs" / "train.jsonl",
        split=split,
        seed=seed,
        changes=changes,
    )


async def _until_stopped(controller: Controller, rounds: int | None) -> Report | None:
    running = asyncio.ensure_future(controller.run(rounds))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return None


def overlaps(overlapped_s: Mapping[str, float]) -> str:
    """The seconds of each overlap that there was."""
    return ", ".join(f"{what} {seconds:.1f} s" for what, seconds in overlapped_s.items() if seconds >= 0.05)


def describe(report: Report) -> str:
    """A run in lines: idle time by member and cause."""
    ages = ", ".join(f"{count} groups {age} versions old" for age, count in sorted(report.staleness.items()))
    lines = [f"{report.rounds} rounds, version {report.version}; {ages or 'no group'}; idle {report.idle_share:.0%}"]
    lines += [f"  beside the work of members: {text}"] if (text := overlaps(report.overlapped_s)) else []
    lines += [f"  {report.refilled} groups were replaced: their rewards are all alike"] if report.refilled else []
    lines += [f"  {report.aborted} groups were aborted: enough others were ready"] if report.aborted else []
    for name, of in report.shares.items():
        idle = {cause: share for cause, share in of.items() if cause not in BUSY and share >= 0.005}
        busy = ", ".join(f"{what} {share:.0%}" for what, share in of.items() if what in BUSY)
        causes = ", ".join(f"{cause} {share:.0%}" for cause, share in sorted(idle.items(), key=lambda one: -one[1]))
        lines.append(f"  {name}: {busy or 'no work'}; idle: {causes or 'never'}")
    return "\n".join(lines)
