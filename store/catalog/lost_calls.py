"""Calls that went upstream and have no record, as `store/shared/lost_calls.py` collects them from the logs.

Invariant: a call is here once, whoever collects it. A session with a lost call is not complete: rounds count it as
unfinished, and never claim it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog, in_portions
from weir.store.catalog.engine import database_now_us, insert_if_absent

PROCESS_ENDED = "process_ended"  # its proxy process ended before the call did
LOG_REFUSED = "log_refused"  # the log did not take its record


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCall:
    """A call without a record. `started_us` is when its request was read, in unix microseconds."""

    call_id: str
    session_id: str
    group_id: str
    started_us: int
    writer: str
    reason: str


def note_lost_calls(catalog: Catalog, lost: Sequence[LostCall]) -> None:
    """Add lost calls; those that are known stay as they are."""
    with catalog.writing().begin() as connection:
        now_us = database_now_us(connection)
        for call in lost:
            connection.execute(insert_if_absent(connection, t.lost_calls, asdict(call) | {"noted_us": now_us}))


def recorded_ends(catalog: Catalog, call_ids: Collection[str]) -> set[str]:
    """Those of the calls that are in a file of the store and ended a history."""
    found: set[str] = set()
    with catalog.reading().begin() as connection:
        for some in in_portions(list(call_ids)):
            ends = sa.select(t.call_ends.c.call_id).where(t.call_ends.c.call_id.in_(some))
            found.update(connection.scalars(ends))
    return found


def waiting_for_lost_calls(catalog: Catalog) -> dict[str, int]:
    """Unclaimed groups with lost calls, and how many of their registered sessions have one."""
    lost, s = t.lost_calls.c, t.sessions.c
    taken = sa.exists().where(t.round_groups.c.group_id == s.group_id)
    query = sa.select(s.group_id, sa.func.count(s.session_id.distinct())).where(~taken, s.session_id == lost.session_id)
    with catalog.reading().begin() as connection:
        return {row[0]: row[1] for row in connection.execute(query.group_by(s.group_id))}
