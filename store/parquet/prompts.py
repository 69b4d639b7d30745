"""Rebuilds stored calls: whole prompts from suffixes, each checked against its stored hash.

Invariant: every rebuilt call matches the hash over its whole prompt and output that was computed at compaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from weir.store.errors import StoreCorrupt
from weir.store.parquet.columns import PLACE_COLUMNS
from weir.store.records.call_record import TokenIds
from weir.store.records.token_sequence import TokenSequence
from weir.store.records.tree import CallRole, CallTokens, Link


def list_slices(column: pa.ChunkedArray) -> list[Any]:
    """A list column of numbers as one NumPy view per row."""
    slices: list[Any] = []
    for chunk in column.chunks:
        values = chunk.values.to_numpy(zero_copy_only=True)
        offsets = chunk.offsets.to_numpy().tolist()
        slices.extend(values[start:end] for start, end in itertools.pairwise(offsets))
    return slices


def rebuild(table: pa.Table) -> list[CallTokens]:
    """Calls with whole prompts, in the table's order. Raises StoreCorrupt where a stored hash disagrees."""
    rows = _rows(table)
    sequences: dict[str, TokenSequence] = {}
    found: dict[str, CallTokens] = {}
    for row in sorted(rows, key=_base_len):
        why = _add_sequence(row, sequences)
        if why is not None:
            raise StoreCorrupt(f"cannot rebuild call {row.call_id}: {why}; weir store verify says what else is damaged")
        found[row.call_id] = row.tokens(sequences[row.call_id])
    return [found[row.call_id] for row in rows]


def broken_calls(table: pa.Table, copies: Sequence[str]) -> dict[int, str]:
    """Rows of whole groups that cannot be rebuilt or are duplicates, each with the reason.

    `copies` gives for each row the number of its file: of a call that is in two files, the copy in the first is sound.
    """
    rows = _rows(table)
    sequences: dict[str, TokenSequence] = {}
    sound_in: dict[str, str] = {}
    broken: dict[int, str] = {}
    for i in sorted(range(len(rows)), key=lambda i: (rows[i].base_len, copies[i])):
        call_id = rows[i].call_id
        if call_id in sound_in:
            broken[i] = f"it is in the file {sound_in[call_id]} too"
            continue
        why = _add_sequence(rows[i], sequences)
        if why is None:
            sound_in[call_id] = copies[i]
        else:
            broken[i] = why
    return broken


def _base_len(row: _Row) -> int:
    return row.base_len  # a base is shorter than the calls that extend it, so this order meets bases first


def _add_sequence(row: _Row, sequences: dict[str, TokenSequence]) -> str | None:
    """Rebuild a call from its base and add it; returns the reason where it does not match its hash."""
    base = None if row.base_call is None else sequences.get(row.base_call)
    if row.base_call is not None and (base is None or len(base) < row.base_len):
        return f"its base {row.base_call} is missing from the store"
    own = row.suffix.tobytes() + row.output.tobytes()
    sequence = TokenSequence(own) if base is None else TokenSequence(base.data[: 4 * row.base_len] + own, base)
    if sequence.end_hash != row.end_hash or row.prompt_len != row.base_len + len(row.suffix):
        return "it does not match its stored hash, so its Parquet file is damaged"
    sequences[row.call_id] = sequence
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A stored call, its columns in the order of `_COLUMNS`."""

    call_id: str
    session_id: str
    started_us: int
    finished_us: int
    base_call: str | None
    base_len: int
    prompt_len: int
    end_hash: bytes
    suffix: TokenIds
    output: TokenIds

    def tokens(self, sequence: TokenSequence) -> CallTokens:
        return CallTokens(
            call_id=self.call_id,
            session_id=self.session_id,
            started_us=self.started_us,
            finished_us=self.finished_us,
            sequence=sequence,
            prompt_len=self.prompt_len,
        )


_COLUMNS = (
    *("call_id", "session_id", "started_us", "finished_us"),
    *("base_call", "base_len", "num_prompt_tokens", "end_hash"),
)


def _rows(table: pa.Table) -> list[_Row]:
    columns = [table[name].to_pylist() for name in _COLUMNS]
    return list(map(_Row, *columns, list_slices(table["prompt_suffix"]), list_slices(table["output_ids"])))


def stored_places(table: pa.Table) -> dict[str, Link]:
    """The places in the tree that were known when the calls were compacted."""
    rows = table.select(["call_id", *PLACE_COLUMNS]).to_pylist()
    return {row.pop("call_id"): Link(**{**row, "role": CallRole(row["role"])}) for row in rows}
