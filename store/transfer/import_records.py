"""The calls of an imported line as records of the log. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from weir.store.errors import ImportRefused
from weir.store.records.call_record import CallRecord, CaptureLevel, VersionSpan, pack_ids, pack_logprobs
from weir.store.transfer.export_rows import IMPORTED_FROM
from weir.store.transfer.import_lines import Line, LineCall

CALL_US = 1000  # the assumed duration of a call without times


def records_of(line: Line, place: str, source: str, weight_version: int | None, now_us: int) -> Iterator[CallRecord]:
    """The records of a line's calls. `now_us` is when the first was made, where the line gives no times.

    Raises ImportRefused, beginning with the line's place in its file.
    """
    ids = line.prompt_ids + line.completion_ids
    first = len(line.prompt_ids)
    for i, call in enumerate(line.calls):
        started_us = now_us + 2 * i * CALL_US
        details = msgspec.structs.asdict(call.details) | {
            "level": CaptureLevel.TOKENS,
            "started_us": started_us if call.details.started_us is None else call.details.started_us,
            "finished_us": started_us + CALL_US if call.details.finished_us is None else call.details.finished_us,
            "agent_ids": call.details.agent_ids | {IMPORTED_FROM: source},
            "spans": _spans(line, call, place, weight_version),
        }
        try:
            yield CallRecord(
                **details,
                call_id=call.call_id,
                session_id=call.session_id,
                group_id=str(line.group_id),
                prompt_ids=pack_ids(ids[: call.output_start]),
                output_ids=pack_ids(ids[call.output_start : call.end]),
                output_logprobs=pack_logprobs(
                    [value or 0.0 for value in line.completion_logprobs[call.output_start - first : call.end - first]]
                ),
                finish=call.finish,
                request=_body(call.request),
                answer=_body(call.answer),
            )
        except ValueError as error:
            raise ImportRefused(f"{place}: {error}") from error


def _spans(line: Line, call: LineCall, place: str, weight_version: int | None) -> tuple[VersionSpan, ...]:
    if call.details.spans is not None:
        return tuple(VersionSpan(*span) for span in call.details.spans)
    first = len(line.prompt_ids)
    given = line.completion_versions or [None] * len(line.completion_ids)
    versions = [weight_version if v is None else v for v in given[call.output_start - first : call.end - first]]
    if None in versions:
        raise ImportRefused(
            f"{place}: which weights sampled tokens {call.output_start}:{call.end}? give completion_versions, or "
            "--weight-version"
        )
    ends = list(itertools.accumulate(len(list(run)) for _, run in itertools.groupby(versions)))
    labels = [str(version) for version, _ in itertools.groupby(versions)]
    return tuple(VersionSpan(*span) for span in zip([0, *ends[:-1]], ends, labels, strict=True))


def _body(value: Any) -> bytes:
    """A body as bytes; text that is not JSON is kept as it is."""
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
