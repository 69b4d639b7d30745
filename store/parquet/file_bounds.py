"""The versions and times of a file's calls, from its lowest to its highest."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from weir.store.records.call_record import ASSUMED

_INTEGER = re.compile(r"-?[0-9]+")


@dataclass(slots=True)
class FileBounds:
    """Grows with each table that enters a file. None: there was none, or (of versions) one cannot be told."""

    first_us: int | None = None
    last_us: int | None = None
    version_low: int | None = None
    version_high: int | None = None
    _is_told: bool = True

    def add(self, table: pa.Table) -> None:
        """A table of calls."""
        for name in ("started_us", "finished_us"):  # clocks may jump, so that a call ends before it begins
            ends = pc.min_max(table[name]).as_py()
            self.first_us = _least(self.first_us, ends["min"])
            self.last_us = _most(self.last_us, ends["max"])
        for label in pc.unique(pc.struct_field(pc.list_flatten(table["spans"]), "label")).to_pylist():
            self._add_version(label.replace(ASSUMED, ""))

    def _add_version(self, label: str) -> None:
        if _INTEGER.fullmatch(label):
            self.version_low = _least(self.version_low, int(label))
            self.version_high = _most(self.version_high, int(label))
        elif re.search("[0-9]", label):  # SQL may read it as a number
            self._is_told = False
        if not self._is_told:
            self.version_low = self.version_high = None


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
