"""Sessions that nobody finishes: when each was last active, and the end of those that were idle for long enough.

Invariant: a session's activity and its end are each one statement with a condition, by the database's clock, so that of
a call that begins and a session that ends by idleness at the same time, in any two processes, exactly one succeeds.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import database_now_us

BY_IDLENESS = "idleness"  # `finished_by` in the info of a session that ended like this
_S = t.sessions.c


def touch_sessions(catalog: Catalog, session_ids: Collection[str]) -> set[str]:
    """Note that sessions are active now; returns those that run. Others were finished, or never registered."""
    with catalog.writing().begin() as connection:
        running = _S.status.is_(None)
        for session_id in session_ids:
            update = t.sessions.update().where((_S.session_id == session_id) & running)
            connection.execute(update.values(active_us=database_now_us(connection)))
        chosen = sa.select(_S.session_id).where(_S.session_id.in_(list(session_ids)) & running)
        return set(connection.scalars(chosen))


def finish_idle_sessions(catalog: Catalog, idle_s: float) -> list[str]:
    """Finish, as done, the running sessions that were not active for `idle_s`; returns them.

    A session that was never active counts from its registration.
    """
    with catalog.writing().begin() as connection:
        at_us = database_now_us(connection)
        idle = _S.status.is_(None) & (sa.func.coalesce(_S.active_us, _S.created_us) <= at_us - int(idle_s * 1e6))
        info = {"finished_by": BY_IDLENESS, "idle_s": idle_s}
        values = {"status": "done", "info": info, "finished_us": at_us}
        chosen = t.sessions.update().where(idle).values(values).returning(_S.session_id)
        return sorted(connection.scalars(chosen))
