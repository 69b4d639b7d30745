"""The store's age, and the groups that retention removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007_retention"
down_revision = "0006_sharing"


def upgrade() -> None:
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
