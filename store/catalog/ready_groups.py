"""Groups that a round may claim: those whose sessions have all ended, or that waited long enough for the rest.

Invariants: a group that any round has claimed is never ready again, and a group of a held-out task, or with a session
that was aborted, never is; a session with a lost call is never among those of a ready group; a group is not ready while
its calls may lie in a log that only another machine can read. Groups are given oldest first, page by page, one
transaction a page, so that a caller may stop early.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import GroupRow
from weir.store.catalog.sessions import finished_by_group, has_lost_call
from weir.store.clock import now_us

PAGE = 64
ABORTED = "aborted"  # the status of a session
LOST_S = 600.0  # a log writer that was silent for longer serves no new groups


def ready_groups(
    catalog: Catalog, *, timeout_s: float | None = None, min_size_ratio: float = 1.0
) -> Iterator[GroupRow]:
    """Groups that no round has claimed, oldest first: complete ones, and with `timeout_s` those that timed out.

    A group is complete when as many sessions have finished as its size requires; a session with a lost call never
    counts as finished, and is not among the sessions of the row. It has timed out when none of its
    sessions was registered or finished for `timeout_s` seconds; it is ready then if at least `min_size_ratio` of its
    size has finished. The size of a group without one is the number of its registered sessions.
    """
    query = _query(timeout_s, min_size_ratio)
    after: tuple[int, str] | None = None
    while True:
        page = _page(catalog, query, after)
        yield from page
        if len(page) < PAGE:
            return
        after = (page[-1].created_us, page[-1].group_id)


def count_ready(catalog: Catalog, *, timeout_s: float | None = None, min_size_ratio: float = 1.0) -> int:
    """The number of ready groups."""
    every = _query(timeout_s, min_size_ratio).limit(None).order_by(None).subquery()
    with catalog.reading().begin() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(every)) or 0)


def _query(timeout_s: float | None, min_size_ratio: float) -> sa.Select[tuple[object, ...]]:
    taken = sa.exists().where(t.round_groups.c.group_id == t.sessions.c.group_id)
    of_free_groups = sa.select(
        t.sessions.c.group_id,
        sa.func.count().label("registered"),
        sa.func.count(sa.case((~has_lost_call(), t.sessions.c.status))).label("finished"),
        sa.func.count(sa.case((t.sessions.c.status == ABORTED, 1))).label("aborted"),
        sa.func.max(sa.func.coalesce(t.sessions.c.finished_us, t.sessions.c.created_us)).label("changed_us"),
    ).where(~taken)
    m = of_free_groups.group_by(t.sessions.c.group_id).subquery()
    ready = m.c.finished >= t.groups.c.group_size
    if timeout_s is not None:
        size = sa.func.coalesce(t.groups.c.group_size, m.c.registered)
        quiet = m.c.changed_us <= now_us() - int(timeout_s * 1e6)
        ready = ready | (quiet & (m.c.finished >= 1) & (m.c.finished >= min_size_ratio * size))
    held_out = sa.func.coalesce(t.groups.c.task["split"].as_string(), "") == "heldout"
    ready = ready & ~held_out & (m.c.aborted == 0) & ~_unshared(m.c.changed_us)
    joined = sa.select(t.groups).join(m, m.c.group_id == t.groups.c.group_id)
    return joined.where(ready).order_by(t.groups.c.created_us, t.groups.c.group_id).limit(PAGE)


def _unshared(changed_us: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Whether a log of another machine may have calls of the group that cannot be read here yet."""
    w = t.log_writers.c
    return sa.exists().where(w.shared_us <= changed_us, t.groups.c.created_us < w.seen_us + int(LOST_S * 1e6))


def _page(catalog: Catalog, query: sa.Select[tuple[object, ...]], after: tuple[int, str] | None) -> list[GroupRow]:
    if after is not None:
        created_us, group_id = after
        later = (t.groups.c.created_us == created_us) & (t.groups.c.group_id > group_id)
        query = query.where((t.groups.c.created_us > created_us) | later)
    with catalog.reading().begin() as connection:
        rows = connection.execute(query).all()
        finished = finished_by_group(connection, [row.group_id for row in rows])
        return [GroupRow(**row._mapping, session_ids=finished[row.group_id]) for row in rows]
