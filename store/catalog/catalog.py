"""The catalog: everything the store keeps besides the calls themselves, in SQLite or PostgreSQL.

Invariants: a group is claimed by at most one round, for ever; a round is committed once, with one version. Registering,
finishing, rewarding, evaluating and committing are idempotent: the same values again change nothing, other values are
refused. Every method is one transaction, safe from several threads and processes. The functions beside this class, over
the same database, cover files, segments, leases and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, IntegrityError

from weir.store.catalog import schema as t
from weir.store.catalog.engine import Area, database_now_us, insert_if_absent, make_engine, only_one
from weir.store.catalog.leases import Lease, check_lease
from weir.store.catalog.migrations.runner import migrate
from weir.store.catalog.rows import NO_BUDGET, Budget, EvaluationRow, RewardRow, RoundRow, SessionRow, VersionRow
from weir.store.catalog.sessions import (
    insert_budget,
    insert_rewards,
    insert_session,
    refuse_lost_calls,
    refuse_other_session,
    register_group,
    session_or_raise,
)
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.errors import (
    RoundConflict,
    SessionConflict,
    StoreUnavailable,
    VersionConflict,
    VersionUnknown,
)

__all__ = ["Catalog", "EvaluationRow", "RewardRow", "RoundRow", "SessionRow", "VersionRow"]

_SESSIONS = sa.select(
    t.sessions, sa.exists().where(t.budgets.c.session_id == t.sessions.c.session_id).label("has_budget")
)
SQL_VARIABLES = 500  # ids in one IN list; SQLite takes no more than 32,766 variables


def in_portions(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Ids in lists that are short enough for one statement."""
    for start in range(0, len(ids), SQL_VARIABLES):
        yield ids[start : start + SQL_VARIABLES]


class Catalog:
    """An open catalog. `Catalog.open` makes one; `close` closes its connections."""

    def __init__(self, engine: sa.Engine) -> None:
        self._readers = engine
        self._writers = engine.execution_options(weir_write=(Area.RECORDS,))

    @classmethod
    def open(cls, config: StoreConfig) -> Catalog:
        """Open the catalog of a store, creating or upgrading its tables.

        Raises StoreUnavailable where the database refuses, and SchemaTooNew where a later Weir made it.
        """
        try:
            config.folder.mkdir(parents=True, exist_ok=True)
            engine = make_engine(config.url)
            with (
                only_one(config.folder / "catalog.lock"),
                engine.execution_options(weir_write=tuple(Area)).begin() as connection,
            ):
                migrate(connection)
        except (OSError, DatabaseError, StoreUnavailable) as error:
            cause = error.orig if isinstance(error, DatabaseError) else error
            raise StoreUnavailable(
                f"cannot open the catalog {sa.make_url(config.url)!r}: {cause}; see store.root and store.catalog_url"
            ) from error
        return cls(engine)

    def close(self) -> None:
        """Close all connections. May be called twice."""
        self._readers.dispose()

    def reading(self) -> sa.Engine:
        """The engine for reads of several tables in one transaction: `with catalog.reading().begin()`."""
        return self._readers

    def writing(self, *areas: Area) -> sa.Engine:
        """The engine for writes of other modules: its transactions hold the areas' write locks from the start.

        Without areas, that of the records.
        """
        return self._readers.execution_options(weir_write=areas) if areas else self._writers

    def now_us(self) -> int:
        """The time in unix microseconds by the clock that all users of the catalog share."""
        with self._readers.begin() as connection:
            return database_now_us(connection)

    # sessions

    def register_session(
        self,
        session_id: str,
        group_id: str,
        *,
        task: dict[str, Any] | None,
        group_size: int | None,
        metadata: dict[str, Any],
        key_hash: str | None,
        budget: Budget = NO_BUDGET,
    ) -> None:
        """Create a session, and its group where it is new. Any session of a group may give its task and size.

        Raises SessionConflict where the session or group exists with other values, or the key is another session's.
        """
        with self._writers.begin() as connection:
            register_group(connection, group_id, task, group_size)
            found = connection.execute(sa.select(t.sessions).where(t.sessions.c.session_id == session_id)).first()
            given = {"group_id": group_id, "metadata": metadata, "key_hash": key_hash}
            if found is not None:
                refuse_other_session(connection, found, given, budget)
                return
            insert_session(connection, session_id, given)
            if budget != NO_BUDGET:
                insert_budget(connection, session_id, budget)

    def find_session(self, session_id: str) -> SessionRow | None:
        """The session with this id, or None."""
        return self._one_session(t.sessions.c.session_id == session_id)

    def find_session_by_key(self, key_hash: str) -> SessionRow | None:
        """The session that was registered with this API key, or None."""
        return self._one_session(t.sessions.c.key_hash == key_hash)

    def _one_session(self, condition: sa.ColumnElement[bool]) -> SessionRow | None:
        with self._readers.begin() as connection:
            row = connection.execute(_SESSIONS.where(condition)).first()
        return None if row is None else SessionRow(**row._mapping)

    def sessions_changed_since(self, since_us: int) -> list[SessionRow]:
        """The sessions that were registered or finished at `since_us` (unix microseconds) or later."""
        changed = (t.sessions.c.created_us >= since_us) | (t.sessions.c.finished_us >= since_us)
        with self._readers.begin() as connection:
            return [SessionRow(**row._mapping) for row in connection.execute(_SESSIONS.where(changed))]

    def finish_session(self, session_id: str, *, status: str, info: dict[str, Any]) -> None:
        """Set the status of an ended session, "done", "failed" or "aborted". The first status is final.

        Raises SessionConflict for another status, SessionUnknown, and ValueError for any other value.
        """
        if status not in ("done", "failed", "aborted"):
            raise ValueError(f'cannot finish session {session_id} as {status!r}: it is "done", "failed" or "aborted"')
        with self._writers.begin() as connection:
            found = session_or_raise(connection, session_id, "finish")
            if found.status is None:
                values = {"status": status, "info": info, "finished_us": database_now_us(connection)}
                connection.execute(t.sessions.update().where(t.sessions.c.session_id == session_id).values(values))
            elif found.status != status:
                raise SessionConflict(f"cannot finish session {session_id} as {status}: it ended as {found.status}")

    # rewards and evaluations

    def add_rewards(self, rewards: Sequence[RewardRow]) -> list[bool]:
        """Attach named numbers to sessions or calls, all or none; False for each reward that exists already.

        Raises SessionUnknown, or RewardConflict where an idempotency key has another reward.
        """
        with self._writers.begin() as connection:
            return insert_rewards(connection, rewards)

    def add_evaluations(self, evaluations: Sequence[EvaluationRow]) -> None:
        """Store evaluations; an existing one of the same (call, content hash) is left unchanged."""
        if not evaluations:
            return
        with self._writers.begin() as connection:
            for row in evaluations:
                connection.execute(insert_if_absent(connection, t.evaluations, asdict(row)))

    # rounds

    def claim_groups(
        self,
        round_id: int,
        group_ids: Sequence[str],
        manifest: dict[str, Any],
        lease: Lease,
        *,
        session_ids: Sequence[str] = (),
    ) -> None:
        """Claim all groups for a round, or none. At most one round is open at a time.

        Raises RoundConflict where the round exists, another is open, a group is unknown or taken, or one of the
        `session_ids` that the round takes as complete lacks a lost call by now; LeaseLost where another process has
        taken the lease of rounds.
        """
        rows = [{"group_id": group_id, "round_id": round_id, "position": i} for i, group_id in enumerate(group_ids)]
        new = {"round_id": round_id, "state": "claimed", "manifest": manifest, "claimed_us": now_us()}
        try:
            with self._writers.begin() as connection:
                check_lease(connection, lease)
                refuse_lost_calls(connection, round_id, session_ids)
                connection.execute(t.rounds.insert().values(new))
                if rows:
                    connection.execute(t.round_groups.insert(), rows)
        except IntegrityError as error:
            raise RoundConflict(
                f"cannot claim {len(group_ids)} groups for round {round_id}: the round exists, another one is open, "
                f"or a group is unknown or taken ({error.orig}); finish the open round, or ask for ready groups again"
            ) from error

    def delete_response(self, call_id: str) -> None:
        """Note that an agent deleted the response of a call, which stays recorded."""
        with self._writers.begin() as connection:
            row = {"call_id": call_id, "deleted_us": database_now_us(connection)}
            connection.execute(insert_if_absent(connection, t.deleted_responses, row))

    def is_response_deleted(self, call_id: str) -> bool:
        """Whether an agent deleted the response of a call."""
        with self._readers.begin() as connection:
            chosen = sa.select(t.deleted_responses.c.call_id).where(t.deleted_responses.c.call_id == call_id)
            return connection.scalar(chosen) is not None

    def commit_round(self, round_id: int, weight_version: int, metrics: dict[str, Any], lease: Lease) -> None:
        """Close a round with the version that it produced; with the same version again, only its metrics are updated.

        Raises RoundConflict for another version or an unknown round, and LeaseLost.
        """
        with self._writers.begin() as connection:
            check_lease(connection, lease)
            found = connection.execute(sa.select(t.rounds).where(t.rounds.c.round_id == round_id)).first()
            if found is None:
                raise RoundConflict(f"cannot commit round {round_id}: no such round was claimed")
            if found.weight_version not in (None, weight_version):
                raise RoundConflict(
                    f"cannot commit round {round_id} with version {weight_version}: "
                    f"it was committed with version {found.weight_version}"
                )
            values = {"state": "committed", "weight_version": weight_version, "metrics": metrics}
            if found.state == "claimed":
                values["committed_us"] = now_us()
            connection.execute(t.rounds.update().where(t.rounds.c.round_id == round_id).values(values))

    def rounds(self) -> list[RoundRow]:
        """All rounds, by number."""
        return self._select_rounds(sa.true())

    def open_round(self) -> RoundRow | None:
        """The round that is claimed and not committed, or None; it must be continued."""
        return next(iter(self._select_rounds(t.rounds.c.state == "claimed")), None)

    def _select_rounds(self, condition: sa.ColumnElement[bool]) -> list[RoundRow]:
        with self._readers.begin() as connection:
            rows = connection.execute(sa.select(t.rounds).where(condition).order_by(t.rounds.c.round_id)).all()
            query = sa.select(t.round_groups).order_by(t.round_groups.c.position)
            members: dict[int, list[str]] = {row.round_id: [] for row in rows}
            for member in connection.execute(query.where(t.round_groups.c.round_id.in_(list(members)))):
                members[member.round_id].append(member.group_id)
        return [RoundRow(**row._mapping, group_ids=members[row.round_id]) for row in rows]

    # weight versions

    def add_version(
        self, version: int, *, path: str, parent: int | None, round_id: int | None, manifest_sha256: str
    ) -> None:
        """Add a set of weights; the same checksum again changes nothing, another one raises VersionConflict."""
        new = {"version": version, "path": str(path), "parent": parent, "round_id": round_id}
        with self._writers.begin() as connection:
            found = connection.execute(sa.select(t.versions).where(t.versions.c.version == version)).first()
            if found is None:
                row = {**new, "manifest_sha256": manifest_sha256, "created_us": now_us()}
                connection.execute(t.versions.insert().values(row))
            elif found.manifest_sha256 != manifest_sha256:
                raise VersionConflict(
                    f"cannot add version {version} from {path}: the version already exists, from {found.path}, "
                    "with other weights"
                )

    def set_published(self, version: int, at_us: int, engines: list[str]) -> None:
        """Record when a version was published and which engines serve it. Raises VersionUnknown."""
        values = {"published_us": at_us, "engines": engines}
        with self._writers.begin() as connection:
            done = connection.execute(t.versions.update().where(t.versions.c.version == version).values(values))
            if done.rowcount == 0:
                raise VersionUnknown(f"cannot mark version {version} as published: it was never added")

    def versions(self) -> list[VersionRow]:
        """All weight versions, by number."""
        with self._readers.begin() as connection:
            rows = connection.execute(sa.select(t.versions).order_by(t.versions.c.version)).all()
        return [VersionRow(**row._mapping) for row in rows]
