"""Groups that are old enough to leave the store, and the reasons why some are still needed.

Invariants: a group leaves whole. A group is needed where a consumer has pinned it, where the open round has claimed it,
where one of the latest rounds trained on it, where it changed recently, or where a round may still claim it; this is
checked again in the transaction in which groups leave. The records of rounds, and the groups that they consumed, stay.
Age is the age of the store, not of the calendar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import in_portions
from weir.store.catalog.leases import ROUNDS
from weir.store.config import StoreConfig
from weir.store.errors import CompactionRunning

DAY_US = 86_400_000_000
YOUNGEST_US = DAY_US // 24  # groups with newer calls are not removed for the size of the store
FREED = 0.1  # of the limit: this much is freed at once, so that files are not rewritten for every group

PINNED = "pinned by an export or a judge that has not ended (weir store status)"
IN_OPEN_ROUND = "claimed by the open round"
IN_LATE_ROUND = "trained on by one of the latest rounds"
BEING_CHOSEN = "a round chooses its groups now"
CHANGED = "a session of it began or ended recently"
CLAIMABLE = "a round may still claim it"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldGroup:
    """A stored group; `age_us` is how long its calls have been in files."""

    group_id: str
    age_us: int
    num_calls: int
    num_bytes: int  # its share of the bytes of its files


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Groups to remove, and the number of old groups that stay, by reason."""

    groups: list[OldGroup] = field(default_factory=list)
    needed: dict[str, int] = field(default_factory=dict)


def due_groups(connection: sa.Connection, config: StoreConfig, age_us: int, now_us: int) -> Due:
    """The groups that retention removes at this age of the store, oldest first."""
    total = int(connection.scalar(sa.select(sa.func.sum(t.files.c.num_bytes))) or 0)
    too_large = config.retention_bytes is not None and total > config.retention_bytes
    least_us = _least_age_us(config)
    if least_us is None and not too_large:
        return Due()
    groups = list(_stored_groups(connection, age_us, YOUNGEST_US if too_large or least_us is None else least_us))
    reasons = _reasons(connection, config, [group.group_id for group in groups], now_us)
    chosen = [group for group in groups if _is_due(config, group, reasons.get(group.group_id))]
    if too_large and config.retention_bytes is not None:
        excess = total - config.retention_bytes * (1 - FREED) - sum(group.num_bytes for group in chosen)
        chosen += _oldest(groups, {group.group_id for group in chosen} | set(reasons), excess)
    going = {group.group_id for group in chosen}
    needed: dict[str, int] = {}
    for group in groups:
        reason = reasons.get(group.group_id)
        if reason is not None and group.group_id not in going and group.age_us >= (least_us or YOUNGEST_US):
            needed[reason] = needed.get(reason, 0) + 1
    return Due(groups=chosen, needed=needed)


def refuse_needed(connection: sa.Connection, config: StoreConfig, group_ids: Sequence[str], now_us: int) -> None:
    """Check again, inside the transaction in which groups leave, that nothing needs them.

    Raises CompactionRunning where something does by now.
    """
    for group_id, reason in _reasons(connection, config, group_ids, now_us).items():
        if reason != CLAIMABLE or config.retention_unclaimed_days is None:
            raise CompactionRunning(
                f"group {group_id} was to leave the store and is needed by now: {reason}; nothing left, run it again"
            )


def remove_groups(connection: sa.Connection, group_ids: Sequence[str], now_us: int) -> None:
    """Delete all rows of some groups, except the rounds that consumed them, inside a writer's transaction."""
    for some in in_portions(group_ids):
        of_them = sa.select(t.sessions.c.session_id).where(t.sessions.c.group_id.in_(some))
        for table in (t.rewards, t.budgets):
            connection.execute(table.delete().where(table.c.session_id.in_(of_them)))
        for table in (t.evaluations, t.lost_calls, t.sessions, t.retired_groups):
            connection.execute(table.delete().where(table.c.group_id.in_(some)))
        taken = sa.exists().where(t.round_groups.c.group_id == t.groups.c.group_id)
        connection.execute(t.groups.delete().where(t.groups.c.group_id.in_(some), ~taken))
        connection.execute(t.retired_groups.insert(), [{"group_id": name, "retired_us": now_us} for name in some])


def retired_groups(connection: sa.Connection, group_ids: Sequence[str]) -> dict[str, int]:
    """When retention removed each of these groups (unix microseconds); a group that it did not remove is missing."""
    found: dict[str, int] = {}
    for some in in_portions(group_ids):
        rows = connection.execute(sa.select(t.retired_groups).where(t.retired_groups.c.group_id.in_(some)))
        found.update((row.group_id, row.retired_us) for row in rows)
    return found


def _least_age_us(config: StoreConfig) -> int | None:
    days = [days for days in (config.retention_days, config.retention_unclaimed_days) if days is not None]
    return int(min(days) * DAY_US) if days else None


def _is_due(config: StoreConfig, group: OldGroup, reason: str | None) -> bool:
    days = {None: config.retention_days, CLAIMABLE: config.retention_unclaimed_days}.get(reason)
    return days is not None and group.age_us >= days * DAY_US


def _oldest(groups: Sequence[OldGroup], without: set[str], num_bytes: float) -> Iterator[OldGroup]:
    """The first groups, until together they have so many bytes."""
    for group in groups:
        if num_bytes <= 0:
            return
        if group.group_id not in without:
            num_bytes -= group.num_bytes
            yield group


def _stored_groups(connection: sa.Connection, age_us: int, least_us: int) -> Iterator[OldGroup]:
    """The groups of at least this age, oldest first.

    Ages are those at the end of the last whole day, so that a file is rewritten at most once a day.
    """
    counted_us = max(age_us - age_us % DAY_US, min(age_us, DAY_US))
    f = t.file_groups.c
    came_us = sa.func.max(sa.func.coalesce(f.age_us, 0)).label("came_us")
    num_bytes = sa.func.sum(f.num_calls * 1.0 * t.files.c.num_bytes / t.files.c.num_calls)
    query = sa.select(f.group_id, came_us, sa.func.sum(f.num_calls), num_bytes).join(t.files).group_by(f.group_id)
    old = query.having(came_us <= counted_us - least_us).order_by(came_us, f.group_id)
    for group_id, came, num_calls, share in connection.execute(old):
        yield OldGroup(group_id=group_id, age_us=counted_us - came, num_calls=num_calls, num_bytes=int(share))


def _reasons(connection: sa.Connection, config: StoreConfig, group_ids: Sequence[str], now_us: int) -> dict[str, str]:
    """The strongest reason why each group is needed; groups that nothing needs are missing."""
    r = t.rounds.c
    late = (
        sa.select(r.round_id).where(r.state == "committed").order_by(r.round_id.desc()).limit(config.retention_rounds)
    )
    late_ids = list(connection.scalars(late))
    open_ids = list(connection.scalars(sa.select(r.round_id).where(r.state == "claimed")))
    lease = sa.select(sa.func.count()).where(t.leases.c.name == ROUNDS, t.leases.c.expires_us > now_us)
    unclaimed = BEING_CHOSEN if not open_ids and connection.scalar(lease) else CLAIMABLE
    recent_us = now_us - (_least_age_us(config) or YOUNGEST_US)
    found: dict[str, str] = {}
    for some in in_portions(group_ids):
        taken = _rounds_of(connection, some)
        for group_id, changed_us in _changes(connection, some).items():
            if group_id not in taken:
                found[group_id] = CHANGED if changed_us > recent_us else unclaimed
        for group_id, round_id in taken.items():
            if round_id in open_ids:
                found[group_id] = IN_OPEN_ROUND
            elif round_id in late_ids:
                found[group_id] = IN_LATE_ROUND
        pinned = sa.select(t.pinned_groups.c.group_id).where(t.pinned_groups.c.group_id.in_(some))
        found.update(dict.fromkeys(connection.scalars(pinned), PINNED))
    return found


def _rounds_of(connection: sa.Connection, group_ids: Sequence[str]) -> dict[str, int]:
    """The round that consumed each group; groups that no round consumed are missing."""
    query = sa.select(t.round_groups.c.group_id, t.round_groups.c.round_id)
    chosen = query.where(t.round_groups.c.group_id.in_(group_ids))
    return {row.group_id: row.round_id for row in connection.execute(chosen)}


def _changes(connection: sa.Connection, group_ids: Sequence[str]) -> dict[str, int]:
    """When a session of each group was last registered or finished; groups without sessions are missing."""
    s = t.sessions.c
    changed_us = sa.func.max(sa.func.coalesce(s.finished_us, s.created_us))
    query = sa.select(s.group_id, changed_us.label("changed_us")).group_by(s.group_id)
    return {row.group_id: row.changed_us for row in connection.execute(query.where(s.group_id.in_(group_ids)))}
