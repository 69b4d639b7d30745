"""Compares the store's records with the engines' ledgers, token by token, for `weir bench gate`.

A token is a mismatch where its id, logprob or version differs, where only the record or only the ledger has it, or
where two records have it. A call that was answered and has no record counts as one mismatch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from weir.store.log.segment_format import list_segments, read_segment
from weir.store.records.call_record import CallRecord, unpack_ids, unpack_logprobs

Token = tuple[int, float, str]  # id, logprob, version


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Counts of one comparison; `holds` are (started, finished, held) of each held call, in microseconds."""

    tokens: int
    mismatches: int
    spanning: int  # calls with tokens of several versions
    holds: list[tuple[int, int, int]]


def compare(root: Path, ledgers: Iterable[Path], answered: set[str]) -> Comparison:
    """Compare every record of a store with the ledgers; `answered` are the call ids of complete answers."""
    drawn = _read(ledgers)
    records = [record for segment in list_segments(root / "log") for record in read_segment(segment.path).records]
    mismatches = tokens = 0
    for record in records:
        truth = [token for rid in record.engine_rids for token in drawn.pop(rid, [])]
        known = _tokens(record)
        tokens += len(known)
        mismatches += abs(len(truth) - len(known)) + sum(a != b for a, b in zip(truth, known, strict=False))
    mismatches += sum(len(rest) for rest in drawn.values())
    mismatches += len(answered - {record.call_id for record in records})
    return Comparison(
        tokens=tokens,
        mismatches=mismatches,
        spanning=sum(len({span.label for span in record.spans}) > 1 for record in records),
        holds=[(r.started_us, r.finished_us, r.held_us) for r in records if r.held_us],
    )


def _read(ledgers: Iterable[Path]) -> dict[str, list[Token]]:
    drawn: dict[str, list[Token]] = {}
    for path in ledgers:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            versions = [version for version, start, end in row["versions"] for _ in range(start, end)]
            drawn[row["rid"]] = [(token, logprob, v) for (logprob, token), v in zip(row["rows"], versions, strict=True)]
    return drawn


def _tokens(record: CallRecord) -> list[Token]:
    versions = [span.label for span in record.spans for _ in range(span.start, span.end)]
    ids, logprobs = unpack_ids(record.output_ids).tolist(), unpack_logprobs(record.output_logprobs).tolist()
    return list(zip(ids, logprobs, versions, strict=True))
