"""Members of a cluster that generates and trains, and what each did when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015_cluster"
down_revision = "0014_actions"


def upgrade() -> None:
    op.create_table(
        "members",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("url", sa.String),
        sa.Column("tags", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("memory_gb", sa.Float),
        sa.Column("train_priority", sa.Float, nullable=False),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("weight_version", sa.BigInteger),
        sa.Column("note", sa.String),
        sa.Column("since_us", sa.BigInteger, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "phases",
        sa.Column("phase_id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("member", sa.String, nullable=False),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("event", sa.String, nullable=False),
        sa.Column("weight_version", sa.BigInteger),
        sa.Column("began_us", sa.BigInteger, nullable=False),
        sa.Column("ended_us", sa.BigInteger),
        sa.Column("seconds", sa.JSON(none_as_null=True)),
    )
    op.create_index("ix_phases_began_us", "phases", ["began_us"])
