"""The age of the store: the clock by which retention decides.

Invariants: the age never decreases. Each update adds the time since the update before, at most `MOST_STEP_S`: a clock
that jumps ahead by years ages the store by no more than that, a clock that jumps back does not make it younger, and a
store that nobody maintains does not age.
"""

from __future__ import annotations

import sqlalchemy as sa

from weir.store.catalog import schema as t

MOST_STEP_S = 25 * 3600.0  # a store that is maintained once a day ages as the calendar does
_THE_ROW = 1


def advance_age(connection: sa.Connection, now_us: int) -> int:
    """Advance the age by the time since the last update, inside a writer's transaction; returns it in microseconds."""
    found = connection.execute(sa.select(t.store_age)).first()
    if found is None:
        connection.execute(t.store_age.insert().values(row_id=_THE_ROW, age_us=0, seen_us=now_us))
        return 0
    step = min(max(now_us - int(found.seen_us), 0), int(MOST_STEP_S * 1e6))
    age_us = int(found.age_us) + step
    connection.execute(t.store_age.update().values(age_us=age_us, seen_us=now_us))
    return age_us
