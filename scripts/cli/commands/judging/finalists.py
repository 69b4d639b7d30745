"""`weir finalists`: judges the best kernels of a store once more, compiled from their source alone."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.preflight import look_for_judge, open_judge
from weir.scripts.launch.settings import ConfigOption, RootOption, existing_store, load_settings

if TYPE_CHECKING:
    from weir.scripts.launch.settings import Settings
    from weir.trainer.rewards.finalists import Finalist, Verdict


def finalists(
    best: Annotated[int, typer.Option(min=1, help="Correct answers of each group.")] = 1,
    round_id: Annotated[int | None, typer.Option("--round", help="Of one round; default: of all.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Correctness trials of each.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Judge the best kernels again, compiled from source alone.

    Finds a candidate whose own processes sent other code than its source gives. Exits with 1 if one is refused. The
    kernel-evaluation server must be running; nothing is written.
    """
    from weir.trainer.rewards.finalists import finalists as best_of

    settings = load_settings(config)
    found = best_of(existing_store(root, config), best=best, round_id=round_id)
    if not found:
        where = "the store" if round_id is None else f"round {round_id}"
        raise UsageError(f"{where} has no answer that was judged correct: run `weir round` first, or name another")
    look_for_judge(settings)
    verdicts = asyncio.run(_judged(settings, found, trials))
    for verdict in verdicts:
        typer.echo(_json(verdict) if as_json else _line(verdict))
    refused = sum(verdict.refused for verdict in verdicts)
    if not as_json:
        confirmed = sum(verdict.confirmed for verdict in verdicts)
        typer.echo(f"{confirmed} of {len(verdicts)} confirmed, {refused} refused")
    if refused:
        raise typer.Exit(1)


async def _judged(settings: Settings, found: list[Finalist], trials: int) -> list[Verdict]:
    from weir.trainer.rewards.finalists import judge_again

    async with aclosing(open_judge(settings)) as client:
        return await judge_again(client, found, trials)


def _json(verdict: Verdict) -> str:
    finalist = verdict.finalist
    names = {"group_id": finalist.group_id, "call_id": finalist.call_id, "reward": finalist.reward}
    return json.dumps(
        {**names, "confirmed": verdict.confirmed, "refused": verdict.refused, "recompiled": verdict.recompiled}
    )


def _line(verdict: Verdict) -> str:
    state = "REFUSED " if verdict.refused else ""
    return f"{verdict.finalist.group_id} {verdict.finalist.call_id}: {state}{verdict.recompiled}"
