"""The versions and times of each file's calls, so that questions about others need not open it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018_file_bounds"
down_revision = "0017_file_sessions"


def upgrade() -> None:
    for name in ("first_us", "last_us", "version_low", "version_high"):
        op.add_column("files", sa.Column(name, sa.BigInteger))
