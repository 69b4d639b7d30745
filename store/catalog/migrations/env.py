"""Alembic's environment: it runs the pending revisions on the connection that `runner.migrate` passes in.

The connection's transaction is the caller's, so nothing is committed here.
"""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
