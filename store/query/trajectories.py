"""Branches as values: the whole token sequence of each, its loss mask, and its calls.

Invariants: all are read at one snapshot; every sequence is checked against the hash that its last call was stored with;
branches that are left out are counted by reason.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.store.errors import StoreCorrupt
from weir.store.parquet.prompts import list_slices
from weir.store.query.question import Parameters, check_question
from weir.store.records.call_record import Logprobs, TokenIds, VersionSpan, pack_ids
from weir.store.records.token_sequence import TokenSequence

BATCH = 256  # trajectories in memory at once


class Policy(enum.StrEnum):
    """Which branches train on a call that several of them share."""

    FIRST = "first"  # the one that began first
    LAST = "last"
    LONGEST = "longest"
    EVERY = "every"  # each of them: shared tokens count several times


class LeftOut(enum.StrEnum):
    """Why a selected branch is left out."""

    NO_TOKENS = "without recorded tokens"
    NO_TARGETS = "without a target"
    NO_REWARD = "without a reward"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPart:
    """A call on a branch. `start:output_start` are its prompt tokens after the call before, `output_start:end` its
    output.
    """

    call_id: str
    session_id: str
    start: int
    output_start: int
    end: int
    is_target: bool
    spans: tuple[VersionSpan, ...]  # counted from output_start
    finish: str
    request: bytes
    answer: bytes
    details: Mapping[str, Any]  # further fields for imports, under the record's names


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Trajectory:
    """One branch. The arrays have shape (T,); `facts` is its row of the view."""

    facts: Mapping[str, Any]
    rewards: Sequence[Mapping[str, Any]]  # of its session
    parts: tuple[CallPart, ...]
    ids: TokenIds
    mask: npt.NDArray[np.uint8]  # 1 at tokens that are trained on
    logprobs: Logprobs  # NaN where the token was not sampled

    @property
    def prompt_len(self) -> int:
        """The number of tokens before the first sampled one."""
        return self.parts[0].output_start

    @property
    def versions(self) -> list[int | None]:
        """The weight version of each token; None for tokens that were not sampled, or where it is not an integer."""
        versions: list[int | None] = [None] * len(self.ids)
        for part in self.parts:
            for span in part.spans:
                length = span.end - span.start
                at = part.output_start + span.start
                versions[at : at + length] = [span.version] * length
        return versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The number of selected trajectories, and of those left out, by reason."""

    count: int
    left_out: Mapping[LeftOut, int]


def choose(
    connection: duckdb.DuckDBPyConnection, where: str, parameters: Parameters, policy: Policy, with_reward: bool
) -> Choice:
    """Select the branches that `read_chosen` gives. `where` is a condition on the view `trajectories`."""
    condition = f"SELECT leaf_call FROM trajectories WHERE (\n{where}\n)"
    check_question(connection, condition)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE asked AS SELECT * FROM trajectories WHERE leaf_call IN ({condition})",
        dict(parameters),
    )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE asked_calls AS
        SELECT * EXCLUDE (first, last, longest), is_target($policy, first, last, longest) AS target
        FROM branch_calls WHERE leaf_call IN (SELECT leaf_call FROM asked)""",
        {"policy": policy.value},
    )
    connection.execute(_REASONS, {"with_reward": with_reward})
    counts = Counter(dict(connection.execute("SELECT reason, count(*) FROM reasons GROUP BY 1").fetchall()))
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE chosen AS
        SELECT row_number() OVER (ORDER BY group_id, session_id, first_call_at, leaf_call) - 1 AS nth, asked.*
        FROM asked JOIN reasons USING (leaf_call) WHERE reason IS NULL"""
    )
    left_out = {reason: counts[reason.value] for reason in LeftOut if counts[reason.value]}
    return Choice(count=counts[None], left_out=left_out)


def chosen_groups(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """The groups of the branches that were chosen."""
    return {group_id for (group_id,) in connection.execute("SELECT DISTINCT group_id FROM chosen").fetchall()}


_REASONS = f"""
CREATE OR REPLACE TEMP TABLE reasons AS
SELECT leaf_call, CASE
    WHEN NOT any_value(trainable) OR sum("end" - output_start) = 0 THEN '{LeftOut.NO_TOKENS}'
    WHEN sum("end" - output_start) FILTER (target) IS NULL THEN '{LeftOut.NO_TARGETS}'
    WHEN $with_reward AND any_value(reward) IS NULL THEN '{LeftOut.NO_REWARD}'
END AS reason
FROM asked JOIN asked_calls USING (leaf_call) GROUP BY leaf_call
"""

_DETAILS = (
    *("session_source", "dialect", "level", "model", "stream", "started_us", "first_token_us", "finished_us"),
    *("held_us", "sampling", "agent_ids", "user_agent", "routed_from", "routed_choices", "routed_experts"),
)
_PARTS = f"""
SELECT t.nth, b.call_id, c.session_id, b.start, b.output_start, b."end", b.target, c.spans, c.finish, c.request,
    c.answer, c.end_hash, {", ".join(f"c.{name}" for name in _DETAILS)},
    coalesce(c.forced, 0) AS forced,
    c.prompt_suffix[b.start - c.base_len + 1 :] AS given_ids, c.output_ids, c.output_logprobs
FROM chosen t JOIN asked_calls b USING (leaf_call) JOIN stored.calls c USING (call_id)
WHERE t.nth >= $start AND t.nth < $stop ORDER BY t.nth, b.place
"""


def read_chosen(connection: duckdb.DuckDBPyConnection) -> Iterator[Trajectory]:
    """The trajectories of the last `choose`, by group and session. Raises StoreCorrupt."""
    rewards = _rewards(connection)
    (count,) = connection.execute("SELECT count(*) FROM chosen").fetchall()[0]
    for start in range(0, count, BATCH):
        window = {"start": start, "stop": start + BATCH}
        facts = _dicts(connection, "SELECT * FROM chosen WHERE nth >= $start AND nth < $stop ORDER BY nth", window)
        parts = connection.sql(_PARTS, params=window).to_arrow_table()
        rows = _part_rows(parts)
        for row in facts:
            members = rows[row.pop("nth")]
            yield _trajectory(row, rewards.get(row["session_id"], ()), members)


def _part_rows(table: pa.Table) -> dict[int, list[dict[str, Any]]]:
    lists = ("given_ids", "output_ids", "output_logprobs")
    slices = {name: list_slices(table[name]) for name in lists}
    found: dict[int, list[dict[str, Any]]] = {}
    for i, row in enumerate(table.drop_columns(list(lists)).to_pylist()):
        found.setdefault(row["nth"], []).append({**row, **{name: slices[name][i] for name in lists}})
    return found


def _trajectory(facts: dict[str, Any], rewards: Sequence[Mapping[str, Any]], rows: list[dict[str, Any]]) -> Trajectory:
    ids = np.concatenate([piece for row in rows for piece in (row["given_ids"], row["output_ids"])]).astype(np.int32)
    if len(ids) != rows[-1]["end"] or TokenSequence(pack_ids(ids)).end_hash != rows[-1]["end_hash"]:
        raise StoreCorrupt(f"the branch of call {facts['leaf_call']} does not match its stored hash: a file is damaged")
    mask = np.zeros(len(ids), np.uint8)
    logprobs = np.full(len(ids), np.nan, np.float32)
    for row in rows:
        sampled = slice(row["output_start"], row["end"])
        mask[sampled] = row["target"]
        logprobs[sampled] = row["output_logprobs"]
    return Trajectory(
        facts=facts, rewards=rewards, parts=tuple(map(_part, rows)), ids=ids, mask=mask, logprobs=logprobs
    )


def _part(row: dict[str, Any]) -> CallPart:
    return CallPart(
        call_id=row["call_id"],
        session_id=row["session_id"],
        start=row["start"],
        output_start=row["output_start"],
        end=row["end"],
        is_target=row["target"],
        spans=tuple(VersionSpan(**span) for span in row["spans"]),
        finish=row["finish"],
        request=row["request"],
        answer=row["answer"],
        details={name: row[name] for name in (*_DETAILS, "forced")},
    )


def _rewards(connection: duckdb.DuckDBPyConnection) -> dict[str, list[dict[str, Any]]]:
    query = """SELECT session_id, call_id, name, value, source, idempotency_key FROM rewards
        WHERE session_id IN (SELECT session_id FROM chosen) ORDER BY created_at, idempotency_key"""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in _dicts(connection, query, {}):
        found.setdefault(row.pop("session_id"), []).append(row)
    return found


def _dicts(connection: duckdb.DuckDBPyConnection, query: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    result = connection.execute(query, values)
    names = [name for name, *_ in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
