"""Creates and upgrades the catalog's tables with Alembic; the revisions are the scripts in `versions`.

Invariants: a released revision never changes; all pending revisions run in the caller's transaction, so that a catalog
is at one revision or another and never in between; a catalog of a later Weir is refused.
The script location is an absolute path: Alembic's `package:path` form does not resolve a namespace package that is
installed editable on Python 3.11 (importlib.resources refuses the import hook among its paths).
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from weir.store.errors import SchemaTooNew

_SCRIPTS = Path(__file__).parent
_ALEMBIC = threading.Lock()  # alembic.context and alembic.op are global to the process


def migrate(connection: sa.Connection) -> None:
    """Upgrade the catalog to the newest revision, inside the caller's transaction.

    Raises SchemaTooNew where the catalog is at a revision that this Weir does not have.
    """
    known = _revisions()
    current = MigrationContext.configure(connection).get_current_revision()
    if current == known[-1]:
        return
    if current is not None and current not in known:
        raise SchemaTooNew(
            f"cannot use the catalog {connection.engine.url!r}: it is at revision {current}, this Weir knows "
            f"{', '.join(known)}; install the version of Weir that made it, or a later one"
        )
    config = _config()
    config.attributes["connection"] = connection
    with _ALEMBIC:
        command.upgrade(config, "head")


@functools.cache
def _revisions() -> list[str]:
    """The names of all revisions, oldest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()][::-1]


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    return config
