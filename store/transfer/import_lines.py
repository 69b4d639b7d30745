"""Reads and checks the lines of an import: JSON Lines of the form that `weir export --format jsonl` writes.

A line is one trajectory. Weir's own lines have every field; for others the ids, the mask and the logprobs are enough:
each run of ones in the mask is a call. Pure functions of one line.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Annotated, Any, Literal

import msgspec

from weir.store.errors import ImportRefused
from weir.store.records.call_record import FinishReason, SessionSource

Name = Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[^\x00]+\Z")]
Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]  # of token ids and weight versions
Count = Annotated[int, msgspec.Meta(ge=0)]
MOST_LOGPROB = 1e-3  # zero, with rounding


class LineReward(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A named number for the session, or for one of its calls."""

    name: Name
    value: float
    call_id: Name | None = None
    source: str = "import"
    idempotency_key: Name | None = None


class LineDetails(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Further fields of a call's record, under their names."""

    session_source: SessionSource = SessionSource.PATH
    dialect: str = "chat"
    level: Literal["tokens"] = "tokens"
    model: str = "imported"
    stream: bool = False
    started_us: Count | None = None
    first_token_us: Count | None = None
    finished_us: Count | None = None
    held_us: Count = 0
    sampling: dict[str, Any] = {}
    agent_ids: dict[str, str] = {}
    user_agent: str | None = None
    forced: Count = 0
    routed_from: Count | None = None
    routed_choices: Count | None = None
    routed_experts: bytes = b""  # in base64
    spans: list[tuple[Count, Count, str]] | None = None  # None: by completion_versions


class LineCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A call of the line: it sampled `output_start:end`, and all tokens before are its prompt."""

    call_id: Name
    session_id: Name
    start: int
    output_start: int
    end: int
    finish: FinishReason
    request: Any = None
    answer: dict[str, Any] | None = None
    details: LineDetails = msgspec.field(default_factory=LineDetails)


class Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One trajectory. Lists named `completion_…` are as long as `completion_ids`."""

    prompt_ids: list[Id]
    completion_ids: list[Id]
    completion_mask: list[Literal[0, 1]]
    completion_logprobs: list[float | None]  # None where the token was not sampled
    completion_versions: list[Id | None] | None = None
    session_id: Name | None = None  # None: named after the line
    group_id: Name | None = None  # None: named after the prompt, so that equal prompts are one group
    group_size: Annotated[int, msgspec.Meta(ge=1)] | None = None  # None: the number of the group's sessions in the file
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


def read_line(text: bytes, place: str, copy: int = 0) -> Line:
    """Parse a line and fill in its names and calls. Raises ImportRefused, beginning with its place in the file.

    `copy` counts equal lines before it: answers with equal tokens are separate samples.
    """
    try:
        line = _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ImportRefused(
            f"{place}: {error}; a line is one trajectory as JSON, docs/exports.md has its fields"
        ) from error
    _check_lengths(line, place)
    name = _name(text + b"#%d" % copy if copy else text)
    if line.session_id is None:
        line.session_id = f"session_{name}"
    if line.group_id is None:
        line.group_id = f"group_{_name(msgspec.json.encode(line.prompt_ids))}"
    if line.calls:
        _check_calls(line, place)
    else:
        line.calls = _calls(line, f"call_{name}", place)
    _check_logprobs(line, place)
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


def _check_calls(line: Line, place: str) -> None:
    """Check that calls follow each other, and that every sampled token belongs to one."""
    first, length = len(line.prompt_ids), len(line.prompt_ids) + len(line.completion_ids)
    end, seen = 0, set()
    for call in line.calls:
        if (
            call.start != end
            or not (call.start <= call.output_start <= call.end <= length)
            or call.output_start < first
        ):
            raise ImportRefused(
                f"{place}: call {call.call_id} has tokens {call.start}:{call.end} and sampled those from "
                f"{call.output_start}; it begins where the one before it ends, here at {end}, and what was sampled "
                f"lies within {first}:{length}"
            )
        if line.completion_mask[max(call.start - first, 0) : call.output_start - first].count(1):
            raise ImportRefused(f"{place}: completion_mask has a 1 in the prompt of call {call.call_id}")
        if call.call_id in seen:
            raise ImportRefused(f"{place}: call {call.call_id} is there twice")
        seen.add(call.call_id)
        end = call.end
    if end != length:
        raise ImportRefused(f"{place}: the calls end at token {end}, the sequence at {length}")


def _check_logprobs(line: Line, place: str) -> None:
    first = len(line.prompt_ids)
    for call in line.calls:
        for at, value in enumerate(line.completion_logprobs[call.output_start - first : call.end - first]):
            if value is None or not math.isfinite(value):
                raise ImportRefused(
                    f"{place}: token {call.output_start + at} was sampled and its logprob is {value}; "
                    "without it nothing can be trained on it"
                )
            if value > MOST_LOGPROB:
                raise ImportRefused(
                    f"{place}: the logprob of token {call.output_start + at} is {value}; it is the logarithm of a "
                    "probability, so 0 at most"
                )


def _calls(line: Line, name: str, place: str) -> list[LineCall]:
    """One call for each run of ones in the mask."""
    runs, at = [], len(line.prompt_ids)
    for is_sampled, run in itertools.groupby(line.completion_mask):
        length = len(list(run))
        if is_sampled:
            runs.append((at, at + length))
        at += length
    if not runs:
        raise ImportRefused(f"{place}: nothing was sampled: completion_mask has no 1")
    told = _messages_by_call(line, len(runs), place)
    starts = [0, *(end for _, end in runs)]
    return [
        LineCall(
            call_id=f"{name}_{i:04}",
            session_id=str(line.session_id),
            start=starts[i],
            output_start=output_start,
            end=end,
            finish=FinishReason.STOP,
            request={"messages": told[i][0]},
            answer=told[i][1],
            details=LineDetails(sampling=line.sampling),
        )
        for i, (output_start, end) in enumerate(runs)
    ]


def _messages_by_call(line: Line, count: int, place: str) -> list[tuple[list[Any], Any]]:
    """For each call, the messages before its answer, and the answer."""
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
