"""`weir run --continuous`: groups without end, held back by what the trainer can use, each version evaluated.

Invariant: whatever ends it, the state file says which groups have ended, and the next start resumes there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from weir.agents.agent_task import Task
from weir.agents.config import AgentsConfig
from weir.agents.continuous.journal import RunJournal
from weir.agents.continuous.pressure import Demand, Pressure
from weir.agents.control import ControlClient
from weir.agents.errors import AgentsError
from weir.agents.evaluation import Evaluation, evaluate
from weir.agents.runner import Agent, GroupOutcome, RunSummary, run_groups
from weir.scripts.launch.settings import Settings
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.ready_groups import count_ready

VERSION_POLL_S = 2.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousRun:
    """What a continuous run is made of."""

    tasks: Sequence[Task]
    heldout: Sequence[Task]  # evaluated at each version
    agent: Agent
    config: AgentsConfig
    seed: int
    num_groups: int | None  # of the whole run, over all its starts; None: without end
    say: Say


async def run_continuously(run: ContinuousRun, settings: Settings, journal: RunJournal) -> RunSummary:
    """Run until `num_groups` groups have ended, or for ever. Raises `AgentsError` where the proxy refuses."""
    if journal.num_ended or journal.interrupted:
        run.say(
            f"resumed: {journal.num_ended} groups have ended; {len(journal.interrupted)} were running when the last "
            f"start ended and run again (epoch {journal.num_ended // len(run.tasks)})"
        )
    catalog = Catalog.open(settings.store)
    trainer = settings.trainer
    pressure = Pressure(trainer.groups_per_round, trainer.max_staleness, lambda: _demand(catalog, settings))
    assert run.config.proxy_url is not None and run.config.control_key is not None
    summary = RunSummary()
    async with ControlClient(run.config.proxy_url, run.config.control_key.get_secret_value(), run.config) as control:
        ended = asyncio.Event()
        feeding = asyncio.create_task(pressure.feed(lambda n, most: run.say(_waits(n, most))))
        evaluating = asyncio.create_task(_evaluate_versions(run, control, journal, ended))
        groups = run_groups(
            run.tasks,
            run.agent,
            control,
            run.config,
            num_groups=run.num_groups,
            seed=run.seed,
            permits=pressure.permits,
            done=journal,
            on_group=journal.start,
        )
        try:
            async with aclosing(groups):  # type: ignore[type-var]
                await _until_end(_take(groups, pressure, journal, summary), feeding, evaluating)
            ended.set()
            await evaluating  # the last version too
        finally:
            for task in (feeding, evaluating):
                task.cancel()
            await asyncio.gather(feeding, evaluating, return_exceptions=True)
            catalog.close()
    return summary


async def _until_end(taking_groups: Coroutine[Any, Any, None], *beside: asyncio.Task[None]) -> None:
    """Return when the last group has ended; a fault of what runs beside the groups ends the run."""
    taking = asyncio.create_task(taking_groups)
    try:
        todo = {taking, *beside}
        while not taking.done():
            over, todo = await asyncio.wait(todo, return_when=asyncio.FIRST_COMPLETED)
            for task in over:
                task.result()
    finally:
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)


async def _take(
    groups: AsyncIterator[GroupOutcome], pressure: Pressure, journal: RunJournal, summary: RunSummary
) -> None:
    async for group in groups:
        journal.end(group.position)
        pressure.end()
        summary.add(group)


def _demand(catalog: Catalog, settings: Settings) -> Demand:
    trainer = settings.trainer
    ready = count_ready(catalog, timeout_s=trainer.group_timeout_s, min_size_ratio=trainer.min_timeout_group_size_ratio)
    return Demand(ready=ready, training=catalog.open_round() is not None)


def _waits(groups: int, most: int) -> str:
    return f"waiting for the trainer: {groups} groups run or are ready, and it can use {most} within max_staleness"


async def _evaluate_versions(
    run: ContinuousRun, control: ControlClient, journal: RunJournal, ended: asyncio.Event
) -> None:
    """Evaluate each version once, the first one included, until the groups have `ended` and theirs is evaluated.

    What is published during an evaluation is evaluated after it; versions between are left out, and said aloud.
    """
    if not (run.heldout and run.config.eval_samples):
        return
    last = max((int(version) for version in journal.evaluated if version.isdecimal()), default=None)
    while True:
        over = ended.is_set()
        version = await control.version()  # None before the first call: the groups of the run make it
        if version is not None and version not in journal.evaluated:
            last = _say_left_out(run, last, version)
            await _evaluate_version(run, control, version)
            journal.evaluate(version)
        if over:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), VERSION_POLL_S)


def _say_left_out(run: ContinuousRun, last: int | None, version: str) -> int | None:
    """Say which versions were published and replaced before they could be evaluated; returns this version's number."""
    if not version.isdecimal():
        return last
    if last is not None and int(version) > last + 1:
        run.say(f"versions {last + 1} to {int(version) - 1} were replaced before they could be evaluated")
    return int(version)


async def _evaluate_version(run: ContinuousRun, control: ControlClient, version: str) -> None:
    try:
        found = await evaluate(
            "heldout",
            run.heldout,
            run.agent,
            control,
            run.config,
            samples=run.config.eval_samples,
            temperature=None,
            seeds=[0],
        )
    except AgentsError as error:
        run.say(f"version {version} could not be evaluated: {error}")
    else:
        run.say(describe(found))


def describe(found: Evaluation) -> str:
    """An evaluation in a line."""
    figures = []
    for name, values in found.rewards.items():
        mean, error = found.mean(name)
        figures.append(f"{name} {mean:.3f} ± {error:.3f} of {len(values)}")
    text = f"version {found.version}, {found.name}: {'; '.join(figures)}"
    if found.failures:
        text += f"; {len(found.failures)} sessions failed, the first: {found.failures[0][:200]}"
    if not found.is_of_one_version:
        text += f"; version {found.ended_at} was published meanwhile: the report counts sessions by their own versions"
    return text
