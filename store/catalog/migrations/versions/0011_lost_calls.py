"""Calls that went upstream and have no record."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011_lost_calls"
down_revision = "0010_refusals"


def upgrade() -> None:
    op.create_table(
        "lost_calls",
        sa.Column("call_id", sa.String, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False, index=True),
        sa.Column("group_id", sa.String, nullable=False, index=True),
        sa.Column("started_us", sa.BigInteger, nullable=False),
        sa.Column("writer", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("noted_us", sa.BigInteger, nullable=False),
    )
