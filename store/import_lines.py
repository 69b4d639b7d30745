"""The lines of an import: JSON Lines of the form that `weir export --format jsonl` writes, checked before any is kept.

A line is one trajectory. Of Weir's own every field is there; of others' the ids, the mask and the logprobs are enough:
each run of ones in the mask is a call. Pure. Not here: how calls are recorded (imports.py).
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from weir.store.errors import ImportRefused
from weir.store.records import FinishReason


class LineReward(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A named number for the session, or for one of its calls."""

    name: str
    value: float
    call_id: str | None = None
    source: str = "import"
    idempotency_key: str | None = None


class LineCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A call of the line: it was told all tokens before `output_start`, and sampled `output_start:end`."""

    call_id: str
    session_id: str
    start: int
    output_start: int
    end: int
    finish: FinishReason
    request: Any = None
    answer: Any = None
    details: dict[str, Any] = {}


class Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One trajectory. Lists named `completion_…` are as long as `completion_ids`."""

    prompt_ids: list[int]
    completion_ids: list[int]
    completion_mask: list[Literal[0, 1]]
    completion_logprobs: list[float | None]  # none where nothing was sampled
    completion_versions: list[int | None] | None = None
    session_id: str | None = None  # none: named after the line
    group_id: str | None = None  # none: named after the prompt, so that equal prompts are one group
    group_size: int | None = None  # none: as many sessions as the file has of the group
    task: dict[str, Any] | None = None
    task_id: str | None = None
    status: Literal["running", "done", "failed"] | None = None
    reward: float | None = None
    rewards: list[LineReward] = []
    messages: list[dict[str, Any]] | None = None  # the conversation; an assistant's message for each call
    sampling: dict[str, Any] = {}
    metadata: dict[str, Any] | None = None
    info: dict[str, Any] | None = None
    leaf_call: str | None = None
    calls: list[LineCall] = []


_decoder = msgspec.json.Decoder(Line)


def read_line(text: bytes, place: str, weight_version: int | None) -> Line:
    """A line with all names filled in. Raises ImportRefused that begins with its place in the file."""
    try:
        line = _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise ImportRefused(f"{place}: {error}; see docs/exports.md for the fields of a line") from error
    _check_lengths(line, place)
    if line.session_id is None:
        line.session_id = f"session_{_name(text)}"
    if line.group_id is None:
        line.group_id = f"group_{_name(msgspec.json.encode(line.prompt_ids))}"
    line.calls = line.calls or list(_calls(line, text, place, weight_version))
    for call in line.calls:
        _check_call(line, call, place)
    return line


def _name(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:24]


def _check_lengths(line: Line, place: str) -> None:
    for name in ("completion_mask", "completion_logprobs", "completion_versions"):
        values = getattr(line, name)
        if values is not None and len(values) != len(line.completion_ids):
            raise ImportRefused(
                f"{place}: {name} has {len(values)} items, completion_ids {len(line.completion_ids)}; "
                "give one for each token"
            )


def _check_call(line: Line, call: LineCall, place: str) -> None:
    first, length = len(line.prompt_ids), len(line.prompt_ids) + len(line.completion_ids)
    if not (first <= call.output_start < call.end <= length):
        raise ImportRefused(
            f"{place}: call {call.call_id} sampled tokens {call.output_start}:{call.end}, not within {first}:{length}"
        )
    for at, value in enumerate(line.completion_logprobs[call.output_start - first : call.end - first]):
        if value is None or not math.isfinite(value):
            raise ImportRefused(
                f"{place}: token {call.output_start + at} was sampled and its logprob is {value}; "
                "without it nothing can be trained on it"
            )


def _calls(line: Line, text: bytes, place: str, weight_version: int | None) -> Iterator[LineCall]:
    """A call for each run of ones in the mask."""
    runs, at = [], len(line.prompt_ids)
    for is_sampled, run in itertools.groupby(line.completion_mask):
        length = len(list(run))
        if is_sampled:
            runs.append((at, at + length))
        at += length
    if not runs:
        raise ImportRefused(f"{place}: nothing was sampled: completion_mask has no 1")
    told = _told(line, len(runs), place)
    start = 0
    for i, (output_start, end) in enumerate(runs):
        versions = _versions(line, output_start, end, place, weight_version)
        spans = [[low, high, str(version)] for low, high, version in _spans(versions)]
        yield LineCall(
            call_id=f"call_{_name(text)}_{i:04}",
            session_id=str(line.session_id),
            start=start,
            output_start=output_start,
            end=end,
            finish=FinishReason.STOP,
            request={"messages": told[i][0]},
            answer=told[i][1],
            details={"spans": spans, "sampling": line.sampling},
        )
        start = end


def _told(line: Line, count: int, place: str) -> list[tuple[list[Any], Any]]:
    """For each call the messages before its answer, and the answer."""
    messages = line.messages or []
    answers = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    if not messages:
        return [([], None)] * count
    if len(answers) < count:
        raise ImportRefused(
            f"{place}: {count} runs of sampled tokens, and {len(answers)} messages of an assistant; "
            "give a message for each, or leave messages out"
        )
    return [(messages[:i], messages[i]) for i in answers[len(answers) - count :]]


def _versions(line: Line, start: int, end: int, place: str, weight_version: int | None) -> list[int]:
    first = len(line.prompt_ids)
    given = line.completion_versions or [weight_version] * len(line.completion_ids)
    versions = [weight_version if value is None else value for value in given[start - first : end - first]]
    if None in versions:
        raise ImportRefused(
            f"{place}: which weights sampled tokens {start}:{end}? give completion_versions, or --weight-version"
        )
    return [version for version in versions if version is not None]


def _spans(versions: list[int]) -> Iterator[tuple[int, int, int]]:
    at = 0
    for version, run in itertools.groupby(versions):
        length = len(list(run))
        yield at, at + length, version
        at += length
