"""The first tables: segments and files, sessions and rewards, rounds, versions and proxies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001_first"
down_revision = None


def upgrade() -> None:
    _create_log_tables()
    _create_session_tables()
    _create_round_tables()


def _create_log_tables() -> None:
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


def _create_session_tables() -> None:
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


def _create_round_tables() -> None:
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
