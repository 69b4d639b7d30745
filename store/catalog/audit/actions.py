"""The audit of what people did on the page: a row for each action, written before it is done and completed afterwards.

Invariant: a row is never deleted, and what it says is never changed; an action without an end is under way, or the
process that did it was killed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import Area, database_now_us, insert_if_absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asked for, and who it was."""

    action_id: str
    kind: str
    subject: str
    given: dict[str, Any]
    note: str
    person: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Asked):
    """An action in the audit; `outcome` is "done", "failed", or None while it is under way."""

    asked_us: int
    ended_us: int | None
    outcome: str | None
    message: str | None


def begin_action(catalog: Catalog, asked: Asked) -> bool:
    """Write an action down before it is done; False where its id is known, so that it was begun before."""
    with catalog.writing(Area.ACTIONS).begin() as connection:
        row = asdict(asked) | {"asked_us": database_now_us(connection)}
        insert = insert_if_absent(connection, t.actions, row).returning(t.actions.c.action_id)
        return connection.execute(insert).first() is not None


def end_action(catalog: Catalog, action_id: str, *, done: bool, message: str) -> None:
    """Complete an action; the first end is final."""
    open_one = (t.actions.c.action_id == action_id) & t.actions.c.ended_us.is_(None)
    with catalog.writing(Area.ACTIONS).begin() as connection:
        values = {
            "ended_us": database_now_us(connection),
            "outcome": "done" if done else "failed",
            "message": message,
        }
        connection.execute(t.actions.update().where(open_one).values(values))


def find_action(catalog: Catalog, action_id: str) -> Action | None:
    """The action with this id, or None."""
    with catalog.reading().begin() as connection:
        row = connection.execute(sa.select(t.actions).where(t.actions.c.action_id == action_id)).first()
    return None if row is None else Action(**row._mapping)


def latest_actions(catalog: Catalog, limit: int) -> list[Action]:
    """The latest actions, the newest first."""
    newest = t.actions.c.asked_us.desc(), t.actions.c.action_id
    with catalog.reading().begin() as connection:
        return [
            Action(**row._mapping) for row in connection.execute(sa.select(t.actions).order_by(*newest).limit(limit))
        ]
