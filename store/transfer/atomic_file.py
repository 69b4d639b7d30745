"""A file that appears whole or not at all: written beside its name, and renamed when it is done."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from weir.store.errors import OutputRefused


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Write to what this gives; it is `path` afterwards. An error leaves nothing, and what was there.

    Raises OutputRefused where the disk refuses.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.touch()
        yield aside
        aside.rename(path)
    except OSError as error:
        raise OutputRefused(
            f"cannot write {path}: {error.strerror or error}; name another place, or make room"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # it cannot be there where it could not be made
            aside.unlink(missing_ok=True)
