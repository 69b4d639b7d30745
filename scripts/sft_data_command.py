"""`weir sft-data`: pairs of PyTorch and Triton sources to a file of conversations for `weir sft`, with a report.

A run that was stopped goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.settings import ConfigOption, load_settings
from weir.scripts.tasks_command import open_judge

if TYPE_CHECKING:
    from weir.agents.corpus import Message
    from weir.agents.sft_data import Wanted
    from weir.agents.sft_journal import Journal
    from weir.scripts.settings import Settings


def sft_data(
    pairs: Annotated[Path, typer.Argument(help="KernelBook's form: *.parquet or *.jsonl, or a folder of them.")],
    out: Annotated[Path, typer.Argument(help="The file of conversations that is written, *.jsonl.")],
    turns: Annotated[int, typer.Option(min=1, max=2, help="2: a mistake and the judge's feedback first.")] = 1,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Leave out conversations longer than this.")] = None,
    model: Annotated[Path | None, typer.Option(help="Whose tokens they are; default: [model] path.")] = None,
    relax_rule: Annotated[list[str] | None, typer.Option(help="A rule that candidates may break.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of inputs and mistakes.")] = 0,
    config: ConfigOption = None,
) -> None:
    """Make conversations for weir sft from pairs of sources.

    Kept is what compiles, is right, and is not slower where a device can tell. Sources run in the
    kernel-evaluation server's sandbox; it has to be running.
    """
    from weir.agents.sft_data import Wanted
    from weir.agents.sft_journal import Journal

    settings = load_settings(config)
    wanted = Wanted(num_turns=turns, max_tokens=max_tokens, relax_rules=tuple(relax_rule or ()), seed=seed)
    length = None if max_tokens is None else _length(settings, model)
    journal = Journal(out.with_name(out.name + ".part"), pairs, wanted)
    asyncio.run(_convert(pairs, journal, settings, wanted, length))
    for line in journal.finish(out):
        typer.echo(line)


async def _convert(
    pairs: Path,
    journal: Journal,
    settings: Settings,
    wanted: Wanted,
    length: Callable[[Sequence[Message]], int] | None,
) -> None:
    from weir.agents.kernelbook import read_rows
    from weir.agents.sft_data import SftData

    async with aclosing(open_judge(settings)) as judge:
        outcomes = SftData(judge, wanted, length).convert(read_rows(pairs), journal.outcomes.keys())
        async with aclosing(outcomes):
            async for number, outcome in outcomes:
                journal.add(number, outcome)


def _length(settings: Settings, model: Path | None) -> Callable[[Sequence[Message]], int]:
    import msgspec

    from weir.scripts.trainer_commands import chat_renderer, first_weights
    from weir.trainer.chat_rows import conversation_rows
    from weir.trainer.supervised_data import Conversation

    renderer = chat_renderer(first_weights(settings, model), settings)

    def length(messages: Sequence[Message]) -> int:
        conversation = Conversation(messages=[msgspec.to_builtins(message) for message in messages])
        return max(len(row.ids) for row in conversation_rows(conversation, renderer))

    return length
