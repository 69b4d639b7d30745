"""The history digest of each compacted call, so that a continuing request finds its file."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_call_ends"
down_revision = "0002_limits"


def upgrade() -> None:
    op.create_table(
        "call_ends",
        sa.Column("call_id", sa.String, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("file_id", sa.String, sa.ForeignKey("files.file_id"), nullable=False),
    )
    op.create_index("ix_call_ends_digest", "call_ends", ["digest"])
