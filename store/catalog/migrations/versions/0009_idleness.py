"""When sessions were last active, so that idle ones can be finished."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009_idleness"
down_revision = "0008_health"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("active_us", sa.BigInteger))
