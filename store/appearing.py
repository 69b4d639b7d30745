"""A file that appears whole or not at all: written beside its name, and renamed when it is done."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Write to what this gives; it is `path` afterwards. An error leaves nothing, and what was there."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield aside
        aside.rename(path)
    finally:
        aside.unlink(missing_ok=True)
