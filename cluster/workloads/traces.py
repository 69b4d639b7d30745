"""Public traces of calls: Mooncake's (JSON lines) and Azure's (CSV).

Mooncake: {"timestamp": milliseconds, "input_length", "output_length", "hash_ids": […]} a line; equal ids are blocks of
512 tokens that are equal, with all before them. Azure 2023: the columns
TIMESTAMP, ContextTokens, GeneratedTokens. Both give calls without sessions, so each call is an episode of one turn.
"""

from __future__ import annotations

import csv
import datetime
import json
import operator
from collections.abc import Sequence
from pathlib import Path

from weir.cluster.errors import TraceInvalid
from weir.cluster.workloads.episode import Episode


def read_mooncake(path: Path, *, prefixes: bool = False) -> list[Episode]:
    """The calls of a Mooncake trace, in the order of their arrival, which counts from the first.

    With `prefixes` they know the blocks of their prompts.

    Raises:
        TraceInvalid: The file cannot be read, or a line is no call of such a trace.
    """
    rows = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            row = json.loads(line)
            blocks = tuple(map(operator.index, row["hash_ids"])) if prefixes else ()
            rows.append((row["timestamp"] / 1000, float(row["input_length"]), float(row["output_length"]), blocks))
        except (ValueError, KeyError, TypeError) as error:
            raise TraceInvalid(f"{path}:{number} is no line of a Mooncake trace: {error!r}") from error
    return _episodes(path, rows)


def read_azure(path: Path) -> list[Episode]:
    """The calls of an Azure LLM inference trace, in the order of their arrival, which counts from the first.

    Raises:
        TraceInvalid: The file cannot be read, or a row is no call of such a trace.
    """
    rows = []
    for number, row in enumerate(csv.DictReader(_text(path).splitlines()), 2):
        try:
            at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).replace(tzinfo=datetime.UTC)
            rows.append((at.timestamp(), float(row["ContextTokens"]), float(row["GeneratedTokens"]), ()))
        except (ValueError, KeyError, TypeError) as error:
            raise TraceInvalid(f"{path}:{number} is no row of an Azure trace: {error!r}") from error
    return _episodes(path, rows)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceInvalid(f"{path} cannot be read as a trace: {error}") from error


def _episodes(path: Path, rows: Sequence[tuple[float, float, float, tuple[int, ...]]]) -> list[Episode]:
    if not rows:
        raise TraceInvalid(f"{path} holds no call")
    first = min(rows)[0]
    return [
        Episode((max(prompt, 1.0),), (max(output, 1.0),), (0.0,), at - first, prefix=blocks)
        for at, prompt, output, blocks in sorted(rows)
    ]
