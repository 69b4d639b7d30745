"""Segments and log writers of machines that share a store in object storage."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006_sharing"
down_revision = "0005_generations"


def upgrade() -> None:
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
