"""How the catalog's tables come to be: a list of revisions, run by Alembic's operations, oldest first.

Invariants: a revision that was released never changes; all pending ones run in one transaction, so that a catalog is at
one revision or another and never between. A catalog from a later Weir is refused. The list is plain Python and not a
folder of scripts, because an installed package has no place for Alembic's environment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from weir.store.errors import SchemaTooNew


@dataclass(frozen=True, slots=True)
class Revision:
    """One step of the schema."""

    name: str
    upgrade: Callable[[Operations], None]


def migrate(connection: sa.Connection) -> None:
    """Bring the catalog to the newest revision, inside the caller's transaction."""
    context = MigrationContext.configure(connection)
    current = context.get_current_revision()
    names = [revision.name for revision in REVISIONS]
    if current is not None and current not in names:
        raise SchemaTooNew(
            f"cannot use the catalog {connection.engine.url!r}: it is at revision {current}, this Weir knows "
            f"{', '.join(names)}; install the version of Weir that made it, or a later one"
        )
    operations = Operations(context)
    for revision in REVISIONS[names.index(current) + 1 if current else 0 :]:
        revision.upgrade(operations)
        connection.execute(sa.text("DELETE FROM alembic_version"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES (:name)"), {"name": revision.name})


def _log_tables(op: Operations) -> None:
    op.create_table("alembic_version", sa.Column("version_num", sa.String(32), primary_key=True))
    op.create_table(
        "segments",
        sa.Column("segment_id", sa.String, primary_key=True),
        sa.Column("num_records", sa.Integer, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("bytes_dropped", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.String),
        sa.Column("compacted_us", sa.BigInteger, nullable=False),
        sa.Column("deleted_us", sa.BigInteger),
    )
    op.create_table(
        "files",
        sa.Column("file_id", sa.String, primary_key=True),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("schema_version", sa.Integer, nullable=False),
        sa.Column("num_calls", sa.Integer, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "file_sources",
        sa.Column("segment_id", sa.String, sa.ForeignKey("segments.segment_id"), primary_key=True),
        sa.Column("file_id", sa.String, sa.ForeignKey("files.file_id")),
    )
    op.create_index("ix_file_sources_file_id", "file_sources", ["file_id"])
    op.create_table(
        "relinks",
        sa.Column("call_id", sa.String, primary_key=True),
        sa.Column("parent_call", sa.String),
        sa.Column("prefix_len", sa.Integer, nullable=False),
        sa.Column("depth", sa.Integer, nullable=False),
        sa.Column("root_call", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("twin_of", sa.String),
        sa.Column("ambiguous", sa.Boolean, nullable=False),
    )


def _session_tables(op: Operations) -> None:
    op.create_table(
        "groups",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("task", sa.JSON(none_as_null=True)),
        sa.Column("group_size", sa.Integer),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.String, primary_key=True),
        sa.Column("group_id", sa.String, sa.ForeignKey("groups.group_id"), nullable=False),
        sa.Column("metadata", sa.JSON, nullable=False),
        sa.Column("key_hash", sa.String, unique=True),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("status", sa.String),
        sa.Column("info", sa.JSON(none_as_null=True)),
        sa.Column("finished_us", sa.BigInteger),
    )
    op.create_index("ix_sessions_group_id", "sessions", ["group_id"])
    op.create_table(
        "rewards",
        sa.Column("session_id", sa.String, sa.ForeignKey("sessions.session_id"), primary_key=True),
        sa.Column("idempotency_key", sa.String, primary_key=True),
        sa.Column("call_id", sa.String),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "evaluations",
        sa.Column("call_id", sa.String, primary_key=True),
        sa.Column("content_hash", sa.String, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False),
        sa.Column("group_id", sa.String, nullable=False),
        sa.Column("round_id", sa.BigInteger),
        sa.Column("compiled", sa.Boolean, nullable=False),
        sa.Column("correct", sa.Boolean, nullable=False),
        sa.Column("fault", sa.String),
        sa.Column("raw_reward", sa.Float, nullable=False),
        sa.Column("result", sa.JSON, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_evaluations_session_id", "evaluations", ["session_id"])
    op.create_index("ix_evaluations_group_id", "evaluations", ["group_id"])


def _round_tables(op: Operations) -> None:
    op.create_table(
        "rounds",
        sa.Column("round_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("manifest", sa.JSON, nullable=False),
        sa.Column("weight_version", sa.BigInteger),
        sa.Column("metrics", sa.JSON(none_as_null=True)),
        sa.Column("claimed_us", sa.BigInteger, nullable=False),
        sa.Column("committed_us", sa.BigInteger),
    )
    claimed = sa.text("state = 'claimed'")
    op.create_index("one_open_round", "rounds", ["state"], unique=True, sqlite_where=claimed, postgresql_where=claimed)
    op.create_table(
        "round_groups",
        sa.Column("group_id", sa.String, sa.ForeignKey("groups.group_id"), primary_key=True),
        sa.Column("round_id", sa.BigInteger, sa.ForeignKey("rounds.round_id"), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
    )
    op.create_index("ix_round_groups_round_id", "round_groups", ["round_id"])
    op.create_table(
        "versions",
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("parent", sa.BigInteger),
        sa.Column("round_id", sa.BigInteger),
        sa.Column("manifest_sha256", sa.String, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("published_us", sa.BigInteger),
        sa.Column("engines", sa.JSON(none_as_null=True)),
    )
    op.create_table(
        "proxies",
        sa.Column("proxy_id", sa.String, primary_key=True),
        sa.Column("url", sa.String, nullable=False),
        sa.Column("writer", sa.String, nullable=False),
        sa.Column("started_us", sa.BigInteger, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
    )


def _first(op: Operations) -> None:
    _log_tables(op)
    _session_tables(op)
    _round_tables(op)


def _limits(op: Operations) -> None:
    op.create_table(
        "budgets",
        sa.Column("session_id", sa.String, sa.ForeignKey("sessions.session_id"), primary_key=True),
        sa.Column("max_calls", sa.BigInteger),
        sa.Column("max_output_tokens", sa.BigInteger),
        sa.Column("max_seconds", sa.Float),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("first_call_us", sa.BigInteger),
        sa.Column("ended_by", sa.String),
    )
    op.create_table(
        "access_keys",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("key_hash", sa.String, nullable=False, unique=True),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("revoked_us", sa.BigInteger),
    )
    op.create_index("ix_sessions_created_us", "sessions", ["created_us"])
    op.create_index("ix_sessions_finished_us", "sessions", ["finished_us"])


def _call_ends(op: Operations) -> None:
    op.create_table(
        "call_ends",
        sa.Column("call_id", sa.String, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("file_id", sa.String, sa.ForeignKey("files.file_id"), nullable=False),
    )
    op.create_index("ix_call_ends_digest", "call_ends", ["digest"])


def _leases(op: Operations) -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
    )


def _generations(op: Operations) -> None:
    op.add_column("segments", sa.Column("generation", sa.BigInteger))
    op.create_index("ix_call_ends_file_id", "call_ends", ["file_id"])
    op.create_table(
        "file_groups",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("file_id", sa.String, sa.ForeignKey("files.file_id"), primary_key=True),
        sa.Column("num_calls", sa.Integer, nullable=False),
        sa.Column("last_us", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_file_groups_file_id", "file_groups", ["file_id"])
    op.create_table(
        "replaced_files",
        sa.Column("file_id", sa.String, primary_key=True),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("replaced_us", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "publications",
        sa.Column("generation", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("published_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("snapshot_id", sa.String, primary_key=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
    )


def _sharing(op: Operations) -> None:
    op.create_table(
        "shared_segments",
        sa.Column("segment_id", sa.String, primary_key=True),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("shared_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "log_writers",
        sa.Column("writer", sa.String, primary_key=True),
        sa.Column("shared_us", sa.BigInteger, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
    )


def _retention(op: Operations) -> None:
    op.add_column("file_groups", sa.Column("age_us", sa.BigInteger))
    op.add_column("snapshots", sa.Column("doubted_us", sa.BigInteger))
    op.create_table(
        "store_age",
        sa.Column("row_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("age_us", sa.BigInteger, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "retired_groups",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("retired_us", sa.BigInteger, nullable=False),
    )


def _health(op: Operations) -> None:
    op.add_column("segments", sa.Column("frames_dropped", sa.BigInteger))
    for name in ("failed", "unrecorded", "waiting"):
        op.add_column("proxies", sa.Column(name, sa.BigInteger))
    op.add_column("proxies", sa.Column("failure", sa.String))


REVISIONS = (
    Revision("0001_first", _first),
    Revision("0002_limits", _limits),
    Revision("0003_call_ends", _call_ends),
    Revision("0004_leases", _leases),
    Revision("0005_generations", _generations),
    Revision("0006_sharing", _sharing),
    Revision("0007_retention", _retention),
    Revision("0008_health", _health),
)
