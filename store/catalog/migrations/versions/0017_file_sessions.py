"""The sessions of each file, so that readers of some sessions need not fetch every file."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017_file_sessions"
down_revision = "0016_switches"


def upgrade() -> None:
    op.create_table(
        "file_sessions",
        sa.Column("session_id", sa.String, primary_key=True),
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("file_id", sa.String, sa.ForeignKey("files.file_id"), primary_key=True, index=True),
    )
