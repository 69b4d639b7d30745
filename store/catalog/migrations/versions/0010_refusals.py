"""Requests of agents that the proxy refused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010_refusals"
down_revision = "0009_idleness"


def upgrade() -> None:
    op.create_table(
        "refusals",
        sa.Column("refusal_id", sa.String, primary_key=True),
        sa.Column("first_us", sa.BigInteger, nullable=False),
        sa.Column("last_us", sa.BigInteger, nullable=False, index=True),
        sa.Column("num_requests", sa.BigInteger, nullable=False),
        sa.Column("session_id", sa.String),
        sa.Column("key_name", sa.String),
        sa.Column("method", sa.String, nullable=False),
        sa.Column("route", sa.String, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("code", sa.String, nullable=False),
        sa.Column("field", sa.String),
        sa.Column("message", sa.String, nullable=False),
        sa.Column("body_digest", sa.String),
    )
