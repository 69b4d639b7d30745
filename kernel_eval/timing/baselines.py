"""How long references took, so that one that was slowed down shows. Pure, but for the file that it is kept in.

A baseline is the shortest median that was measured for a reference on a kind of device, with a driver and versions of
libraries: `key`. A speedup is never computed with a reference that is slower than its baseline by more than `DRIFT`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import msgspec

DRIFT = 1.1


class Surroundings(NamedTuple):
    """All that a reference's time depends on besides its source."""

    device: str
    driver: str
    torch: str
    triton: str
    cuda: str


def key(reference_src: str, surroundings: Surroundings) -> str:
    """What a baseline is known by."""
    parts = (reference_src, *surroundings)
    return hashlib.blake2b(b"\0".join(part.encode() for part in parts), digest_size=16).hexdigest()


def believable_us(measured_us: float, baseline_us: float | None) -> float:
    """The reference's time that a speedup is computed with."""
    return measured_us if baseline_us is None else min(measured_us, DRIFT * baseline_us)


class Baselines:
    """Baselines by key; kept in a file where one is given, so that they outlive the server."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, float] = {}
        if path is not None and path.exists():
            self._known = msgspec.json.decode(path.read_bytes(), type=dict[str, float])

    def find(self, name: str) -> float | None:
        """In microseconds; None for a reference that was not measured so."""
        return self._known.get(name)

    def note(self, name: str, measured_us: float) -> None:
        """A reference was measured again."""
        known = self._known.get(name)
        if known is not None and known <= measured_us:
            return
        self._known[name] = measured_us
        if self._path is not None:
            aside = self._path.with_suffix(".new")
            aside.write_bytes(msgspec.json.encode(self._known))
            aside.replace(self._path)
