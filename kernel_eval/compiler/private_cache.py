"""Triton's cache where one process uses it alone: files are written in their place.

Triton writes each file in a new folder, moves it, and removes the folder, so that processes that share a cache never
read half a file: five system calls that change a file system for one. The cache of a contained process is its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import triton
from triton.runtime.cache import FileCacheManager


class PrivateCache(FileCacheManager):  # type: ignore[misc]
    """A cache in a folder that no other process reads."""

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Store bytes, or what prints as a text; returns the file's path. Raises OSError if it cannot be written."""
        path = Path(self._make_path(filename))
        path.write_bytes(data if isinstance(data, bytes) else str(data).encode())
        return str(path)


def install() -> None:
    """Use it in this process and those forked from it."""
    triton.knobs.cache.manager_class = PrivateCache
