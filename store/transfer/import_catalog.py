"""Enters imported groups and sessions into the catalog: all of a file in one transaction, or none.

Invariant: existing rows stay as they are; a file that contradicts them is refused.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import database_now_us
from weir.store.catalog.sessions import insert_rewards, insert_session, register_group
from weir.store.errors import SessionConflict
from weir.store.transfer.import_plan import ImportPlan, PlannedSession


def keep_sessions(catalog: Catalog, plan: ImportPlan, trial: bool = False) -> None:
    """Register, reward and finish the sessions. With `trial` nothing is changed: only conflicts are raised.

    Raises SessionConflict and RewardConflict.
    """
    with catalog.writing().connect() as connection, connection.begin() as transaction:
        for group_id, size in plan.group_sizes().items():
            task, _ = plan.tasks.get(group_id, (None, ""))
            register_group(connection, group_id, task, size)
        for session_id, (session, _) in plan.sessions.items():
            _keep_session(connection, session_id, session)
        if trial:
            transaction.rollback()


def _keep_session(connection: sa.Connection, session_id: str, session: PlannedSession) -> None:
    given: dict[str, Any] = {"group_id": session.group_id, "metadata": session.metadata}
    ended: dict[str, Any] = {"status": session.status, "info": session.info}
    found = connection.execute(sa.select(t.sessions).where(t.sessions.c.session_id == session_id)).first()
    if found is None:
        insert_session(connection, session_id, given | ended | {"finished_us": database_now_us(connection)})
    else:
        _refuse_other(session_id, dict(found._mapping), given | {"status": session.status})
    insert_rewards(connection, session.rewards, database_now_us(connection))


def _refuse_other(session_id: str, found: dict[str, Any], given: dict[str, Any]) -> None:
    for name, value in given.items():
        if found[name] != value:
            raise SessionConflict(
                f"cannot import session {session_id}: it is already registered with another {name}: "
                f"{found[name]!r}, not {value!r}; "
                "import into another store, or give it another session_id"
            )
