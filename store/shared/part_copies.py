"""Parts of shared files on this machine: the blocks of an object that readers asked for, fetched by range.

Invariants: an object never changes, so a block that is here stays right. A block counts as here only if it has the
digest that is noted behind all blocks: what a crash left half-written, or what two processes wrote at once, is fetched
again. A part may be deleted at any time: whoever has it open reads on, and the next one begins anew.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from xxhash import xxh3_64_digest

from weir.store.errors import StoreCorrupt, StoreUnavailable
from weir.store.shared.object_store import Objects

BLOCK_BYTES = 64 * 2**10
FOLDER = "parts"
_DIGEST_BYTES = 8


class PartCopy:
    """An open part of one object. Reads are safe from several threads; closing twice is harmless.

    Raises StoreUnavailable where its file cannot be opened.
    """

    def __init__(self, objects: Objects, folder: Path, key: str, num_bytes: int) -> None:
        self._objects = objects
        self._key = key
        self.num_bytes = num_bytes
        path = folder / FOLDER / Path(key).name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.utime(self._fd)
        except OSError as error:
            raise StoreUnavailable(f"cannot keep a part of {objects.root}/{key} in {path}: {error}") from error

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a range, of which missing blocks are fetched. Raises StoreUnavailable and StoreCorrupt."""
        end = min(end, self.num_bytes)
        if start >= end:
            return b""
        first, behind = start // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        data = bytearray(self._block_range(first, behind))
        for one, other in _runs(self._missing(data, first, behind)):
            at = (one - first) * BLOCK_BYTES
            fetched = self._fetch(one, other)
            data[at : at + len(fetched)] = fetched
        return bytes(memoryview(data)[start - first * BLOCK_BYTES : end - first * BLOCK_BYTES])

    def close(self) -> None:
        """Close the file; the part stays."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _block_range(self, first: int, behind: int) -> bytes:
        start = first * BLOCK_BYTES
        length = min(behind * BLOCK_BYTES, self.num_bytes) - start
        return os.pread(self._fd, length, start).ljust(length, b"\0")

    def _missing(self, data: bytearray, first: int, behind: int) -> list[int]:
        view = memoryview(data)
        noted = os.pread(self._fd, (behind - first) * _DIGEST_BYTES, self._place_of_digest(first))
        return [
            first + i
            for i in range(behind - first)
            if xxh3_64_digest(view[i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES])
            != noted[i * _DIGEST_BYTES : (i + 1) * _DIGEST_BYTES]
        ]

    def _fetch(self, first: int, behind: int) -> bytes:
        start, end = first * BLOCK_BYTES, min(behind * BLOCK_BYTES, self.num_bytes)
        try:
            fetched = self._objects.read_range(self._key, start, end)
        except FileNotFoundError as error:
            raise StoreCorrupt(f"{self._objects.root}/{self._key} is gone; weir store verify --repair") from error
        if len(fetched) != end - start:
            raise StoreCorrupt(
                f"{self._objects.root}/{self._key} has {start + len(fetched):,} bytes, and the catalog says "
                f"{self.num_bytes:,}; weir store verify says what else is damaged"
            )
        digests = [xxh3_64_digest(fetched[i : i + BLOCK_BYTES]) for i in range(0, len(fetched), BLOCK_BYTES)]
        with contextlib.suppress(OSError):  # a full disk: then it is fetched again
            os.pwrite(self._fd, fetched, start)
            os.pwrite(self._fd, b"".join(digests), self._place_of_digest(first))
        return fetched

    def _place_of_digest(self, block: int) -> int:
        return -(-self.num_bytes // BLOCK_BYTES) * BLOCK_BYTES + block * _DIGEST_BYTES


def delete_parts(folder: Path, keys: Sequence[str]) -> None:
    """Delete the parts of all objects but these."""
    kept = {Path(key).name for key in keys}
    for path in part_copies(folder):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def part_copies(folder: Path) -> list[Path]:
    """The parts on this machine."""
    return list((folder / FOLDER).iterdir()) if (folder / FOLDER).is_dir() else []


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Consecutive numbers as ranges: the first, and the one behind the last."""
    for _, run in itertools.groupby(enumerate(numbers), lambda one: one[1] - one[0]):
        found = [number for _, number in run]
        yield found[0], found[-1] + 1
