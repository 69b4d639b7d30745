"""`weir sft-data`: turns pairs of PyTorch and Triton sources into conversations for `weir sft`, with a report.

A run that was stopped resumes where it was. With `--from-store` the conversations are the best recorded answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.preflight import look_for_judge, open_judge
from weir.scripts.launch.settings import ConfigOption, RootOption, load_settings

if TYPE_CHECKING:
    from weir.agents.corpus import Message
    from weir.agents.kernelbook import NotAPair, Row
    from weir.agents.sft_data import Wanted
    from weir.agents.sft_journal import Journal
    from weir.scripts.launch.settings import Settings


def sft_data(
    pairs: Annotated[
        Path,
        typer.Argument(help="KernelBook's form: *.parquet or *.jsonl, or a folder of them; not with --from-store."),
    ],
    out: Annotated[Path | None, typer.Argument(help="Output file of conversations, *.jsonl.")] = None,
    from_store: Annotated[
        str | None,
        typer.Option(help="SELECT over the store's views with the columns call_id and reward, and if wanted task."),
    ] = None,
    best: Annotated[int, typer.Option(min=0, help="--from-store: answers kept of each task; 0: all.")] = 1,
    min_reward: Annotated[float | None, typer.Option(help="--from-store: leave out answers below this.")] = None,
    last_turn_only: Annotated[
        bool, typer.Option("--last-turn-only", help="--from-store: earlier answers of a branch are no targets.")
    ] = False,
    root: RootOption = None,
    turns: Annotated[int, typer.Option(min=1, max=2, help="2: a mistake and the judge's feedback first.")] = 1,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Leave out conversations longer than this.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model folder whose tokens count; default: [model] path.")] = None,
    relax_rule: Annotated[list[str] | None, typer.Option(help="A rule that candidates may break.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of inputs and mistakes.")] = 0,
    config: ConfigOption = None,
) -> None:
    """Make conversations for weir sft from pairs or the store.

    Of pairs it keeps those that compile, are correct, and are not slower where a device can time them. Sources run in
    the kernel-evaluation server's sandbox, which must be running. From the store it keeps the answers with the largest
    rewards of each task (group).
    """
    if from_store is not None:
        wanted_form = (best, min_reward, last_turn_only)
        _from_store(from_store, pairs, out, wanted_form, root, config)
        return
    if out is None:
        raise UsageError("give two paths: the pairs, and the output file; or --from-store with the output file alone")
    from weir.agents.kernelbook import read_rows
    from weir.agents.sft_data import Wanted
    from weir.agents.sft_journal import Journal
    from weir.scripts.launch.preflight import require_folder

    settings = load_settings(config)
    _refuse_unknown(relax_rule or ())
    require_folder(out)
    rows = read_rows(pairs)
    look_for_judge(settings)
    wanted = Wanted(num_turns=turns, max_tokens=max_tokens, relax_rules=tuple(relax_rule or ()), seed=seed)
    length = None if max_tokens is None else _length(settings, model)
    journal = Journal(out.with_name(out.name + ".part"), pairs, wanted)
    asyncio.run(_convert(rows, journal, settings, wanted, length))
    for line in journal.finish(out):
        typer.echo(line)


def _from_store(
    query: str,
    out: Path,
    second: Path | None,
    form: tuple[int, float | None, bool],
    root: str | None,
    config: Path | None,
) -> None:
    from weir.scripts.launch.preflight import require_folder
    from weir.scripts.launch.settings import existing_store
    from weir.store.atomic_file import written_aside
    from weir.trainer.sft.from_store import Wanted, choose_from_store

    if second is not None:
        raise UsageError(f"--from-store takes one path, the output file; {second} is a second one")
    require_folder(out)
    best, min_reward, last_turn_only = form
    wanted = Wanted(best=best or None, min_reward=min_reward, last_turn_only=last_turn_only)
    chosen = choose_from_store(existing_store(root, config), query, wanted)
    with written_aside(out) as aside:
        aside.write_text("".join(json.dumps(line) + "\n" for line in chosen.lines))
    typer.echo(
        f"{out}: {len(chosen.lines)} conversations of {chosen.num_tasks} tasks, {chosen.num_exact} with recorded ids"
    )
    for reason, count in sorted(chosen.left_out.items()):
        typer.echo(f"left out: {reason.value} {count}")


def _refuse_unknown(rules: Sequence[str]) -> None:
    from weir.kernel_eval.judge.source.rules import RULES

    if unknown := sorted(set(rules) - RULES.keys()):
        raise UsageError(f"--relax-rule {unknown[0]}: there is no such rule; the rules are {', '.join(sorted(RULES))}")


async def _convert(
    rows: Iterator[tuple[str, Row | NotAPair]],
    journal: Journal,
    settings: Settings,
    wanted: Wanted,
    length: Callable[[Sequence[Message]], int] | None,
) -> None:
    from weir.agents.sft_data import SftData

    async with aclosing(open_judge(settings)) as judge:
        outcomes = SftData(judge, wanted, length).convert(rows, journal.outcomes.keys())
        async with aclosing(outcomes):
            async for number, outcome in outcomes:
                journal.add(number, outcome)


def _length(settings: Settings, model: Path | None) -> Callable[[Sequence[Message]], int]:
    import msgspec

    from weir.scripts.launch.resolve import chat_renderer, first_weights
    from weir.trainer.data.chat_rows import conversation_rows
    from weir.trainer.data.dataset import Conversation

    renderer = chat_renderer(first_weights(settings, model), settings)

    def length(messages: Sequence[Message]) -> int:
        conversation = Conversation(messages=[msgspec.to_builtins(message) for message in messages])
        return max(len(row.ids) for row in conversation_rows(conversation, renderer))

    return length
