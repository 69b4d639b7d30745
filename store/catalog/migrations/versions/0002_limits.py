"""Budgets of sessions, access keys, and indexes for polling sessions by time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_limits"
down_revision = "0001_first"


def upgrade() -> None:
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
