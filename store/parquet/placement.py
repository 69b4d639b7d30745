"""Places of new records in the trees of their groups, among the stored calls.

Invariant: the places are those of the whole recorded set, so a stored call whose parent arrives late moves.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weir.store.parquet.columns import call_tokens
from weir.store.parquet.files import read_groups
from weir.store.parquet.prompts import rebuild, stored_places
from weir.store.records.call_record import CallRecord
from weir.store.records.token_sequence import TokenSequence
from weir.store.records.tree import CallTokens, Link, link


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """New records and their places in the trees of their groups."""

    fresh: list[CallRecord] = field(default_factory=list)  # records that are not stored yet
    places: dict[str, Link] = field(default_factory=dict)  # of the new records, as are the hashes of their ends
    end_hashes: dict[str, bytes] = field(default_factory=dict)
    moved: dict[str, Link] = field(default_factory=dict)  # new places of stored calls that moved


def place(records: Sequence[CallRecord], files: Sequence[Path], known_moves: Mapping[str, Link]) -> Placement:
    """Link records with the stored calls of their groups. Raises StoreCorrupt where those cannot be rebuilt."""
    ordered = sorted(records, key=_group)
    table = read_groups(files, sorted({record.group_id for record in records}))
    stored_at = {**stored_places(table), **known_moves}
    stored: dict[str, list[CallTokens]] = {}
    for group_id, call in zip(table["group_id"].to_pylist(), rebuild(table), strict=True):
        stored.setdefault(group_id, []).append(call)
    placed = Placement()
    for group_id, members in itertools.groupby(ordered, _group):  # one group's tokens in memory at a time
        _place_group(list(members), stored.get(group_id, []), stored_at, placed)
    return placed


def _group(record: CallRecord) -> str:
    return record.group_id


def _place_group(
    records: Sequence[CallRecord], stored: Sequence[CallTokens], stored_at: Mapping[str, Link], placed: Placement
) -> None:
    known = {call.call_id for call in stored}
    fresh = [record for record in records if record.call_id not in known]
    if not fresh:
        return
    tokens = _tokens(fresh)
    for call_id, at in link([*stored, *tokens]).items():
        if call_id not in known:
            placed.places[call_id] = at
        elif stored_at[call_id] != at:
            placed.moved[call_id] = at
    placed.fresh.extend(fresh)
    placed.end_hashes.update({call.call_id: call.sequence.end_hash for call in tokens})


def _tokens(records: Sequence[CallRecord]) -> list[CallTokens]:
    """A session's calls mostly extend the one before, whose hashes are reused."""
    latest: dict[str, TokenSequence] = {}
    tokens = []
    for record in records:
        call = call_tokens(record, latest.get(record.session_id))
        latest[record.session_id] = call.sequence
        tokens.append(call)
    return tokens
