"""What people did on the page."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014_actions"
down_revision = "0013_deleted_responses"


def upgrade() -> None:
    op.create_table(
        "actions",
        sa.Column("action_id", sa.String, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("subject", sa.String, nullable=False),
        sa.Column("given", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("note", sa.String, nullable=False),
        sa.Column("person", sa.String, nullable=False),
        sa.Column("address", sa.String, nullable=False),
        sa.Column("asked_us", sa.BigInteger, nullable=False),
        sa.Column("ended_us", sa.BigInteger),
        sa.Column("outcome", sa.String),
        sa.Column("message", sa.String),
    )
    op.create_index("ix_actions_asked_us", "actions", ["asked_us"])
