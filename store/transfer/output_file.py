"""Files that a command writes for its user: whole or not at all, with an error that says what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from weir.store.atomic_file import written_aside
from weir.store.errors import OutputRefused


@contextlib.contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; on success it is renamed to `path`, on an error `path` is left as it was.

    Raises OutputRefused where the file system refuses.
    """
    try:
        with written_aside(path) as aside:
            yield aside
    except OSError as error:
        raise OutputRefused(
            f"cannot write {path}: {error.strerror or error}; name another place, or free some space"
        ) from error
