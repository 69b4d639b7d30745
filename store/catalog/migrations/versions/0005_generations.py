"""Generations of the file list, pinned snapshots, and the groups of each file."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005_generations"
down_revision = "0004_leases"


def upgrade() -> None:
    op.add_column("segments", sa.Column("generation", sa.BigInteger))
    op.create_index("ix_call_ends_file_id", "call_ends", ["file_id"])
    op.create_table(
        "file_groups",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("file_id", sa.String, sa.ForeignKey("files.file_id"), primary_key=True),
        sa.Column("num_calls", sa.Integer, nullable=False),
        sa.Column("last_us", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_file_groups_file_id", "file_groups", ["file_id"])
    op.create_table(
        "replaced_files",
        sa.Column("file_id", sa.String, primary_key=True),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("replaced_us", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "publications",
        sa.Column("generation", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("published_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("snapshot_id", sa.String, primary_key=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
    )
