"""Process groups of engines that do not say in which ones they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019_weight_groups"
down_revision = "0018_file_bounds"


def upgrade() -> None:
    op.create_table(
        "weight_groups",
        sa.Column("url", sa.String, primary_key=True),
        sa.Column("group_name", sa.String, primary_key=True),
    )
