"""Devices that engines and training take in turns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016_switches"
down_revision = "0015_cluster"


def upgrade() -> None:
    op.create_table(
        "asleep_engines",
        sa.Column("url", sa.String, primary_key=True),
        sa.Column("member", sa.String, nullable=False),
        sa.Column("process", sa.String),
        sa.Column("model_path", sa.String, nullable=False),
        sa.Column("weight_version", sa.String),
        sa.Column("held_until_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "switches",
        sa.Column("switch_id", sa.Integer, primary_key=True),
        sa.Column("member", sa.String, nullable=False),
        sa.Column("side", sa.String, nullable=False),
        sa.Column("began_us", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("steps", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("freed_bytes", sa.BigInteger),
        sa.Column("error", sa.String),
    )
