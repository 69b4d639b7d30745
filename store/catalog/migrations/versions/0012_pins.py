"""Groups that a consumer reads and has not acknowledged."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012_pins"
down_revision = "0011_lost_calls"


def upgrade() -> None:
    op.create_table(
        "pins",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("pinned_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "pinned_groups",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("name", sa.String, sa.ForeignKey("pins.name"), primary_key=True, index=True),
    )
