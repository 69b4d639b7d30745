"""Collects the groups, sessions and calls of an import's lines, and refuses lines that contradict each other.

Several lines may be branches of one session, and share calls, whose fields must agree. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, cast

from xxhash import xxh3_128_digest

from weir.store.catalog.rows import RewardRow
from weir.store.errors import ImportRefused
from weir.store.records.call_record import CallRecord
from weir.store.records.token_sequence import TokenSequence
from weir.store.transfer.export_rows import LONE_REWARD
from weir.store.transfer.import_lines import Line

Status = Literal["done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSession:
    """A session of the file. It is finished: nothing is added to it."""

    group_id: str
    status: Status
    metadata: dict[str, Any]
    info: dict[str, Any]
    rewards: tuple[RewardRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMark:
    """The fields that two records of one call have in common."""

    session_id: str
    group_id: str
    end_hash: bytes  # of prompt and answer
    logprobs_hash: bytes


@dataclass(slots=True)
class ImportPlan:
    """All of a file, without its tokens. Every value has the place of the line that gave it first."""

    sessions: dict[str, tuple[PlannedSession, str]] = field(default_factory=dict)
    calls: dict[str, tuple[CallMark, str]] = field(default_factory=dict)
    tasks: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)  # by group
    sizes: dict[str, tuple[int, str]] = field(default_factory=dict)
    num_lines: int = 0

    def add(self, line: Line, records: Sequence[CallRecord], place: str) -> None:
        """Add a line. Raises ImportRefused where it contradicts an earlier one."""
        self.num_lines += 1
        session_id, group_id = str(line.session_id), str(line.group_id)
        _agree(self.sessions, session_id, planned_session(line), f"session {session_id}", place)
        task = line.task or ({"task_id": line.task_id} if line.task_id else None)
        if task is not None:
            _agree(self.tasks, group_id, task, f"the task of group {group_id}", place)
        if line.group_size is not None:
            _agree(self.sizes, group_id, line.group_size, f"the size of group {group_id}", place)
        for record in records:
            _agree(self.calls, record.call_id, call_mark(record), f"call {record.call_id}", place)

    def group_sizes(self) -> dict[str, int]:
        """The size of every group: as given, else the number of its sessions in the file."""
        found: dict[str, int] = {}
        for session, _ in self.sessions.values():
            found[session.group_id] = found.get(session.group_id, 0) + 1
        return found | {group_id: size for group_id, (size, _) in self.sizes.items()}


def _agree(known: dict[str, tuple[Any, str]], name: str, value: Any, what: str, place: str) -> None:
    held, first = known.setdefault(name, (value, place))
    if held != value:
        raise ImportRefused(
            f"{place}: {what} has another {_difference(held, value)} than at {first}; all lines must agree on it"
        )


def _difference(one: Any, other: Any) -> str:
    names = [one_field.name for one_field in fields(one)] if is_dataclass(one) else []
    return " and ".join(name for name in names if getattr(one, name) != getattr(other, name)) or "value"


def planned_session(line: Line) -> PlannedSession:
    """The session of a line."""
    status = "failed" if line.status == "failed" else "done"
    return PlannedSession(
        group_id=str(line.group_id),
        status=cast(Status, status),
        metadata=line.metadata or {},
        info=line.info or {},
        rewards=tuple(_rewards(line)),
    )


def _rewards(line: Line) -> list[RewardRow]:
    """The rewards of the line; a single `reward` becomes a reward of the session."""
    session_id = str(line.session_id)
    if not line.rewards and line.reward is not None:
        return [RewardRow(session_id=session_id, value=line.reward, **LONE_REWARD)]
    return [
        RewardRow(
            session_id=session_id,
            call_id=reward.call_id,
            name=reward.name,
            value=reward.value,
            source=reward.source,
            idempotency_key=reward.idempotency_key or f"import-{i}",
        )
        for i, reward in enumerate(line.rewards)
    ]


def call_mark(record: CallRecord) -> CallMark:
    """The mark of a record."""
    return CallMark(
        session_id=record.session_id,
        group_id=record.group_id,
        end_hash=TokenSequence(record.prompt_ids + record.output_ids).end_hash,
        logprobs_hash=xxh3_128_digest(record.output_logprobs),
    )
