"""Which program wrote which part of a storage, and which read it: what a result that depends on their order betrays.

Programs of a launch run in any order on a device. The result depends on it if two programs write different values to
one place, or if one reads a place that another writes. Places are groups of `granule` bytes, the smallest element that
the kernel accesses.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from weir.kernel_eval.ir.grid.lattice import Lattice
from weir.kernel_eval.ir.grid.report import Written
from weir.kernel_eval.ir.grid.values import Lanes

_NOBODY, _SEVERAL = -1, -2


class Tracker:
    """Follows one storage that a kernel writes. `follows_reads`: whether it also loads from it."""

    def __init__(self, size: int, granule: int, follows_reads: bool, races: set[str]) -> None:
        self.follows_reads = follows_reads
        self._granule = granule
        self._places = size // granule
        self._races = races
        self._writers: torch.Tensor | None = None  # (places,) int32: a program, nobody or several
        self._readers: torch.Tensor | None = None
        self._atomics: torch.Tensor | None = None  # (places,) bool
        self._rows: list[tuple[Lattice, torch.Tensor | None, torch.Tensor]] = []  # not yet in `_writers`
        self._range = (0, 0)

    def written(self) -> Written:
        """Which places were written, atomically or not."""
        if self._writers is None:
            flags = torch.zeros(self._places, dtype=torch.bool)
            for lattice, mask, _ in self._rows:
                view = torch.as_strided(flags, lattice.sizes, lattice.strides, lattice.start)
                if mask is None:
                    view.fill_(True)
                else:
                    view.logical_or_(mask)
        else:
            flags = self._owners() != _NOBODY
        if self._atomics is not None:
            flags |= self._atomics
        return Written(granule=self._granule, flags=flags)

    def store_rows(
        self,
        lattice: Lattice,
        mask: torch.Tensor | None,
        programs: Lanes,
        levels: tuple[int, ...],
        size: int,
        changes: Callable[[], torch.Tensor],
    ) -> None:
        """Note a store to a lattice of elements, of which no two are the same; the first axes are the programs.

        changes: says for each element whether the store changes its bits.
        """
        parts = size // self._granule
        if parts > 1:
            strides = tuple(stride * parts for stride in lattice.strides)
            lattice = Lattice(lattice.start * parts, (*lattice.sizes, parts), (*strides, 1))
            mask = None if mask is None else mask.unsqueeze(-1)
        ranks = len(lattice.sizes) - len(levels)
        owners = torch.from_numpy(programs).to(torch.int32).view((*levels, *([1] * ranks)))
        low, high = lattice.bounds
        if self._writers is None and not self.follows_reads and self._atomics is None and self._is_new(low, high):
            self._rows.append((lattice, None if mask is None else mask.clone(), owners))
            return
        self._settle()
        self._note_rows(lattice, mask, owners, changes if parts == 1 else lambda: changes().unsqueeze(-1))

    def _is_new(self, low: int, high: int) -> bool:
        """Whether a range follows or precedes everything that was written, which it is then added to."""
        start, end = self._range
        if start == end:
            self._range = (low, high)
        elif low >= end:
            self._range = (start, high)
        elif high <= start:
            self._range = (low, end)
        else:
            return False
        return True

    def _owners(self) -> torch.Tensor:
        if self._writers is None:
            self._writers = torch.full((self._places,), _NOBODY, dtype=torch.int32)
        return self._writers

    def _settle(self) -> None:
        rows, self._rows = self._rows, []
        writers = self._owners()
        for lattice, mask, owners in rows:
            view = torch.as_strided(writers, lattice.sizes, lattice.strides, lattice.start)
            view.copy_(owners.expand(lattice.sizes) if mask is None else torch.where(mask, owners, view))

    def _note_rows(
        self, lattice: Lattice, mask: torch.Tensor | None, owners: torch.Tensor, changes: Callable[[], torch.Tensor]
    ) -> None:
        view = torch.as_strided(self._owners(), lattice.sizes, lattice.strides, lattice.start)
        other = (view != _NOBODY) & (view != owners)
        if mask is not None:
            other &= mask
        if bool(other.any()) and bool((other & changes()).any()):
            self._races.add("two programs write to one place")
        if self._readers is not None:
            readers = torch.as_strided(self._readers, lattice.sizes, lattice.strides, lattice.start)
            read = (readers != _NOBODY) & (readers != owners)
            read = read if mask is None else read & mask
            if bool(read.any()) and bool((read & changes()).any()):
                self._races.add("a program writes what another one read")
        view.copy_(owners.expand(lattice.sizes) if mask is None else torch.where(mask, owners, view))

    # ---- by index

    def _spread(self, index: torch.Tensor, lanes: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Places of elements, and their programs."""
        parts = size // self._granule
        index, lanes = index.reshape(-1), lanes.reshape(-1)
        if parts == 1:
            return index, lanes
        places = (index * parts).unsqueeze(1) + torch.arange(parts)
        return places.reshape(-1), lanes.unsqueeze(1).expand(-1, parts).reshape(-1)

    def read(self, index: torch.Tensor, lanes: torch.Tensor, size: int) -> None:
        """Note that programs read elements; a program of -2 stands for several."""
        if not self.follows_reads:
            return
        self._settle()
        places, programs = self._spread(index, lanes, size)
        if self._readers is None:
            self._readers = torch.full((self._places,), _NOBODY, dtype=torch.int32)
        writers = self._owners().index_select(0, places)
        if bool(((writers != _NOBODY) & (writers != programs)).any()):
            self._races.add("a program reads what another one wrote")
        _join(self._readers, places, programs)

    def before_write(
        self, index: torch.Tensor, lanes: torch.Tensor, size: int, old: torch.Tensor, new: torch.Tensor
    ) -> None:
        """Note a store by index. old, new: the bits of the elements before and after."""
        self._settle()
        places, programs = self._spread(index, lanes, size)
        parts = size // self._granule
        changed = (old != new).unsqueeze(1).expand(-1, parts).reshape(-1)
        writers = self._owners().index_select(0, places)
        if bool((changed & (writers != _NOBODY) & (writers != programs)).any()):
            self._races.add("two programs write to one place")
        if self._readers is not None:
            readers = self._readers.index_select(0, places)
            if bool((changed & (readers != _NOBODY) & (readers != programs)).any()):
                self._races.add("a program writes what another one read")
        _join(self._owners(), places, programs)

    def after_write(self, stored: torch.Tensor, meant: torch.Tensor) -> None:
        """Compare what a store by index left with what it was meant to write."""
        if not torch.equal(stored, meant):
            self._races.add("one store writes different values to one place")

    def atomic(self, index: torch.Tensor, lanes: torch.Tensor, size: int) -> None:
        """Note atomic updates: plain stores and loads of the same places by other programs depend on the order."""
        places, _ = self._spread(index, lanes, size)
        if self._atomics is None:
            self._settle()
            self._atomics = torch.zeros(self._places, dtype=torch.bool)
        self._atomics[places] = True


def _join(known: torch.Tensor, places: torch.Tensor, programs: torch.Tensor) -> None:
    """Enter programs in (places,): several where another program, or two of these, are there already."""
    before = known.index_select(0, places)
    entered = torch.where((before == _NOBODY) | (before == programs), programs, _SEVERAL)
    known.index_copy_(0, places, entered)
    lost = known.index_select(0, places) != entered
    if bool(lost.any()):
        known[places[lost]] = _SEVERAL
