"""Responses that agents deleted: their calls stay recorded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013_deleted_responses"
down_revision = "0012_pins"


def upgrade() -> None:
    op.create_table(
        "deleted_responses",
        sa.Column("call_id", sa.String, primary_key=True),
        sa.Column("deleted_us", sa.BigInteger, nullable=False),
    )
