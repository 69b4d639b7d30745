"""Statements that write sessions, groups and rewards, inside a transaction of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from weir.store.catalog import schema as t
from weir.store.catalog.rows import Budget, RewardRow
from weir.store.clock import now_us
from weir.store.errors import RewardConflict, RoundConflict, SessionConflict, SessionUnknown

IN_ONE_QUERY = 500  # ids in one IN list


def register_group(
    connection: sa.Connection, group_id: str, task: dict[str, Any] | None, group_size: int | None
) -> None:
    """Create a group, or complete its task and size. Raises SessionConflict where it has others."""
    found = connection.execute(sa.select(t.groups).where(t.groups.c.group_id == group_id)).first()
    given = {name: value for name, value in (("task", task), ("group_size", group_size)) if value is not None}
    if found is None:
        connection.execute(t.groups.insert().values(group_id=group_id, created_us=now_us(), **given))
        return
    for name, value in given.items():
        if found._mapping[name] not in (None, value):
            raise SessionConflict(
                f"cannot register a session in group {group_id}: its {name} is {found._mapping[name]!r}, "
                f"not {value!r}; sessions of one group share one task and size"
            )
    missing = {name: value for name, value in given.items() if found._mapping[name] is None}
    if missing:
        connection.execute(t.groups.update().where(t.groups.c.group_id == group_id).values(missing))


def insert_session(connection: sa.Connection, session_id: str, given: dict[str, Any]) -> None:
    """Add a session. Raises SessionConflict if it was registered in the meantime."""
    try:
        connection.execute(t.sessions.insert().values(session_id=session_id, created_us=now_us(), **given))
    except IntegrityError as error:
        raise SessionConflict(
            f"cannot register session {session_id}: its key belongs to another session; make a new key"
        ) from error


def insert_budget(connection: sa.Connection, session_id: str, budget: Budget) -> None:
    connection.execute(t.budgets.insert().values(session_id=session_id, calls=0, output_tokens=0, **asdict(budget)))


def refuse_other_session(connection: sa.Connection, found: sa.Row[Any], given: dict[str, Any], budget: Budget) -> None:
    """Raise SessionConflict where a session that exists differs from the given values."""
    row = connection.execute(sa.select(t.budgets).where(t.budgets.c.session_id == found.session_id)).first()
    there = Budget(**{name: row._mapping[name] for name in asdict(budget)}) if row is not None else Budget()
    for name, value, held in (
        *((name, value, found._mapping[name]) for name, value in given.items()),
        ("budget", budget, there),
    ):
        if held != value:
            seen = "" if name == "key_hash" else f" {held!r}, not {value!r}"
            raise SessionConflict(
                f"cannot register session {found.session_id}: it is already registered with another "
                f"{name}{seen and ':'}{seen}; "
                "choose another session id"
            )


def session_or_raise(connection: sa.Connection, session_id: str, verb: str) -> sa.Row[Any]:
    """The row of a session. Raises SessionUnknown, which says what was tried (`verb`)."""
    found = connection.execute(sa.select(t.sessions).where(t.sessions.c.session_id == session_id)).first()
    if found is None:
        raise _unknown(session_id, verb)
    return found


def has_lost_call() -> sa.ColumnElement[bool]:
    """Whether a row of `sessions` lacks a call, because it was lost on its way."""
    return sa.exists().where(t.lost_calls.c.session_id == t.sessions.c.session_id)


def refuse_lost_calls(connection: sa.Connection, round_id: int, session_ids: Sequence[str]) -> None:
    """Raise RoundConflict where a session that a round takes as complete lacks a call."""
    for start in range(0, len(session_ids), IN_ONE_QUERY):
        chosen = t.lost_calls.c.session_id.in_(session_ids[start : start + IN_ONE_QUERY])
        lost = connection.execute(sa.select(t.lost_calls).where(chosen)).first()
        if lost is not None:
            raise RoundConflict(
                f"cannot claim group {lost.group_id} for round {round_id}: call {lost.call_id} of its session "
                f"{lost.session_id} was lost since the group was chosen; nothing was claimed, run the round again"
            )


def finished_by_group(connection: sa.Connection, group_ids: Sequence[str]) -> dict[str, list[str]]:
    """The finished sessions of each group that lack no call, oldest first; at most `IN_ONE_QUERY` groups."""
    query = sa.select(t.sessions.c.group_id, t.sessions.c.session_id).where(
        t.sessions.c.group_id.in_(group_ids), t.sessions.c.status.is_not(None), ~has_lost_call()
    )
    found: dict[str, list[str]] = {group_id: [] for group_id in group_ids}
    for group_id, session_id in connection.execute(query.order_by(t.sessions.c.created_us, t.sessions.c.session_id)):
        found[group_id].append(session_id)
    return found


def insert_rewards(connection: sa.Connection, rewards: Sequence[RewardRow], at_us: int | None = None) -> list[bool]:
    """Insert rewards; returns for each whether it is new.

    Raises SessionUnknown, and RewardConflict where its key has another one. Times are one microsecond apart, because of
    several rewards with one name the last counts; without `at_us` they start now.
    """
    at_us = now_us() if at_us is None else at_us
    there: dict[tuple[str, str], dict[str, Any]] = {}
    for start in range(0, len(rewards), IN_ONE_QUERY):
        there |= _rewards_there(connection, sorted({r.session_id for r in rewards[start : start + IN_ONE_QUERY]}))
    new: list[dict[str, Any]] = []
    is_new: list[bool] = []
    for i, reward in enumerate(rewards):
        given = {"call_id": reward.call_id, "name": reward.name, "value": float(reward.value), "source": reward.source}
        found = there.setdefault((reward.session_id, reward.idempotency_key), given)
        if found != given:
            raise RewardConflict(
                f"cannot reward session {reward.session_id}: the idempotency key {reward.idempotency_key!r} holds "
                f"{found}, not {given}; use a new key for a new reward"
            )
        is_new.append(found is given)
        if found is given:
            key = {"session_id": reward.session_id, "idempotency_key": reward.idempotency_key}
            new.append(key | given | {"created_us": at_us + i})
    if new:
        connection.execute(t.rewards.insert(), new)
    return is_new


def _rewards_there(connection: sa.Connection, session_ids: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """The rewards of sessions, by session and idempotency key. Raises SessionUnknown."""
    known = set(connection.scalars(sa.select(t.sessions.c.session_id).where(t.sessions.c.session_id.in_(session_ids))))
    for session_id in session_ids:
        if session_id not in known:
            raise _unknown(session_id, "reward")
    columns = [t.rewards.c[name] for name in ("session_id", "idempotency_key", "call_id", "name", "value", "source")]
    found = connection.execute(sa.select(*columns).where(t.rewards.c.session_id.in_(session_ids)))
    return {
        (session_id, key): {"call_id": call_id, "name": name, "value": value, "source": source}
        for session_id, key, call_id, name, value, source in found
    }


def _unknown(session_id: str, verb: str) -> SessionUnknown:
    return SessionUnknown(f"cannot {verb} session {session_id}: it was never registered")
