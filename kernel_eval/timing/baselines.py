"""Baselines: the shortest times measured for references, which expose a reference that was slowed down.

A baseline is the shortest median of a reference's measurements on one type of device, with one driver and one version
of each library. No speedup is computed with a reference that is slower than its baseline by more than `DRIFT`.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

DRIFT = 1.1


class Surroundings(NamedTuple):
    """The factors besides its source that a reference's time depends on."""

    device: str
    driver: str
    torch: str
    triton: str
    cuda: str


def key(reference_src: str, surroundings: Surroundings) -> str:
    """The key of a baseline: a hash of the reference's source and the surroundings."""
    parts = (reference_src, *surroundings)
    return hashlib.blake2b(b"\0".join(part.encode() for part in parts), digest_size=16).hexdigest()


def believable_us(measured_us: float, baseline_us: float | None) -> float:
    """The reference's time to compute a speedup with, at most `DRIFT` times the baseline."""
    return measured_us if baseline_us is None else min(measured_us, DRIFT * baseline_us)


class Baselines:
    """Baselines by key. With a path they are kept in that file, and outlive the server."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, float] = {}
        if path is not None and path.exists():
            self._known = msgspec.json.decode(path.read_bytes(), type=dict[str, float])

    def find(self, name: str) -> float | None:
        """Microseconds; None for a reference that was not measured in these surroundings."""
        return self._known.get(name)

    def note(self, name: str, measured_us: float) -> None:
        """Lower a baseline to a new measurement, if that is shorter. Raises OSError if the file cannot be written."""
        known = self._known.get(name)
        if known is not None and known <= measured_us:
            return
        self._known[name] = measured_us
        if self._path is not None:
            _replace_file(self._path, msgspec.json.encode(self._known))


def _replace_file(path: Path, content: bytes) -> None:
    """Write a file so that it has either its old or its new content, also after a crash."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
