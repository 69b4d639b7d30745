"""The steps by which sessions and groups are written, inside a transaction of the catalog."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from weir.store import catalog_schema as t
from weir.store.catalog_engine import now_us
from weir.store.errors import SessionConflict, SessionUnknown


def register_group(
    connection: sa.Connection, group_id: str, task: dict[str, Any] | None, group_size: int | None
) -> None:
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
    try:
        connection.execute(t.sessions.insert().values(session_id=session_id, created_us=now_us(), **given))
    except IntegrityError as error:
        raise SessionConflict(
            f"cannot register session {session_id}: its key belongs to another session; make a new key"
        ) from error


def session_or_raise(connection: sa.Connection, session_id: str, verb: str) -> sa.Row[Any]:
    found = connection.execute(sa.select(t.sessions).where(t.sessions.c.session_id == session_id)).first()
    if found is None:
        raise SessionUnknown(f"cannot {verb} session {session_id}: it was never registered")
    return found


def finished_of(connection: sa.Connection, group_id: str) -> list[str]:
    query = sa.select(t.sessions.c.session_id).where(
        t.sessions.c.group_id == group_id, t.sessions.c.status.is_not(None)
    )
    return list(connection.scalars(query.order_by(t.sessions.c.created_us, t.sessions.c.session_id)))
