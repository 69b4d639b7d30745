"""Frames dropped by compaction, and failure counts of each proxy."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008_health"
down_revision = "0007_retention"


def upgrade() -> None:
    op.add_column("segments", sa.Column("frames_dropped", sa.BigInteger))
    for name in ("failed", "unrecorded", "waiting"):
        op.add_column("proxies", sa.Column(name, sa.BigInteger))
    op.add_column("proxies", sa.Column("failure", sa.String))
