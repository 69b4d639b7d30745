"""The store's age: for how long it has been looked after, which is what retention counts in.

Invariants: the age never goes back. It grows by what the clock advanced since it was last looked at, at most by
`MOST_STEP_S`: a clock that jumps ahead by years makes nothing old by more than that, one that jumps back makes nothing
younger, and what nobody looks after does not age. Not here: what is old enough to go (catalog_retention.py).
"""

from __future__ import annotations

import sqlalchemy as sa

from weir.store.catalog import schema as t

MOST_STEP_S = 25 * 3600.0  # so that a store that is looked after once a day ages as the calendar does
_THE_ROW = 1


def grow_older(connection: sa.Connection, now_us: int) -> int:
    """Inside a writer's transaction: count the time that went by. Returns the age in microseconds."""
    found = connection.execute(sa.select(t.store_age)).first()
    if found is None:
        connection.execute(t.store_age.insert().values(row_id=_THE_ROW, age_us=0, seen_us=now_us))
        return 0
    step = min(max(now_us - int(found.seen_us), 0), int(MOST_STEP_S * 1e6))
    age_us = int(found.age_us) + step
    connection.execute(t.store_age.update().values(age_us=age_us, seen_us=now_us))
    return age_us
