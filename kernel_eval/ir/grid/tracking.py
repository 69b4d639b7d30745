"""Which program wrote which part of a storage, and which read it: what a result that depends on an order betrays.

Programs of a launch run in any order on a device, and so do the lanes of a program between two barriers. The result
depends on it if two of them write different values to one place, or if one reads a place that another writes. A lane
is known by its position in a tensor of a shape whose addresses have a pattern: which threads of a device hold that
position is the compiler's choice, and the same for the same shape and pattern. Where atomics tell a program that others
are done (`clocks.py`), it may read and write what these wrote and read. Places are groups of `granule` bytes, the
smallest element that the kernel accesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from weir.kernel_eval.ir.grid.clocks import Clocks
from weir.kernel_eval.ir.grid.lattice import Lattice
from weir.kernel_eval.ir.grid.report import Written
from weir.kernel_eval.ir.grid.values import Lanes

_NOBODY, _SEVERAL = -1, -2
_ATOMICS = "a program reads or writes what another one changes by atomics"
_SCOPE = "atomics of scope 'cta' change what those of another program change"
_PIPELINED = "a loop loads what it has stored, with no barrier between, which a compiler takes before that store"
_LANES = "a lane reads or writes what another one of its program wrote or read, with no barrier between"

Pattern = tuple[int, ...] | None  # what neighbours along each axis differ by, in bytes; None for any other addresses
Pick = Callable[[torch.Tensor], torch.Tensor]


class Positions:
    """Numbers of the positions in tensors, no two the same."""

    def __init__(self) -> None:
        self._starts: dict[tuple[tuple[int, ...], Pattern], int] = {}
        self._next = 0

    def of(self, shape: tuple[int, ...], pattern: Pattern, accessed: tuple[int, ...] | None = None) -> torch.Tensor:
        """The numbers of positions, int32; (1, *shape).

        accessed: sizes of what is accessed, 1 where all positions along an axis access the same, which are several.
        """
        if accessed is not None and accessed != shape:
            return torch.full((1,) * (len(shape) + 1), _SEVERAL, dtype=torch.int32)
        size = math.prod(shape)
        pattern = pattern if size > 1 else None  # one position is that of all threads
        if (shape, pattern) not in self._starts:
            self._starts[shape, pattern] = self._next
            self._next += size
        start = self._starts[shape, pattern]
        return torch.arange(start, start + size, dtype=torch.int32).view(1, *shape)


class _Marks:
    """Who accessed each place in one way: a program, and the position of its lane since the program's last barrier.

    With clocks also when, on that program's clock; what happened before an access is forgotten at it.
    """

    def __init__(self, places: int, clocks: Clocks | None) -> None:
        self.programs = torch.full((places,), _NOBODY, dtype=torch.int32)
        self.positions = torch.full((places,), _NOBODY, dtype=torch.int32)
        self._clocks = clocks
        self._times = None if clocks is None else torch.zeros(places, dtype=torch.int32)

    def happened_before(self, pick: Pick) -> torch.Tensor | None:
        """Which of the picked accesses happened before what the running program does now; None without clocks."""
        if self._clocks is None or self._times is None:
            return None
        return self._clocks.knows(pick(self.programs), pick(self._times))

    def put(self, lattice: Lattice, mask: torch.Tensor | None, programs: torch.Tensor, positions: torch.Tensor) -> None:
        """Enter a lattice of places, instead of what is there."""
        for known, new in ((self.programs, programs), (self.positions, positions)):
            view = torch.as_strided(known, lattice.sizes, lattice.strides, lattice.start)
            view.copy_(new.expand(lattice.sizes) if mask is None else torch.where(mask, new, view))
        if self._clocks is not None and self._times is not None:
            view = torch.as_strided(self._times, lattice.sizes, lattice.strides, lattice.start)
            view.copy_(torch.where(torch.tensor(True) if mask is None else mask, self._clocks.now, view))

    def join(self, places: torch.Tensor, programs: torch.Tensor, positions: torch.Tensor) -> None:
        """Enter places by index beside what is there."""
        if (past := self.happened_before(_at(places))) is not None:
            self.programs[places[past]] = _NOBODY
            self.positions[places[past]] = _NOBODY
        _join(self.programs, places, programs)
        _join(self.positions, places, positions)
        self._note_time(places)

    def replace(self, places: torch.Tensor, programs: torch.Tensor, positions: torch.Tensor) -> None:
        """Enter places by index: positions instead of what is there."""
        if (past := self.happened_before(_at(places))) is not None:
            self.programs[places[past]] = _NOBODY
        _join(self.programs, places, programs)
        self.positions.index_copy_(0, places, positions)
        self._note_time(places)

    def _note_time(self, places: torch.Tensor) -> None:
        if self._clocks is not None and self._times is not None:
            self._times[places] = self._clocks.now

    def pass_barrier(self, programs: Lanes, active: torch.Tensor | None) -> None:
        """Forget the positions of programs, which are consecutive. active: which of them, or None for all."""
        if active is None:
            self.positions.fill_(_NOBODY)
            return
        self.positions[_of_programs(self.programs, programs, active)] = _NOBODY


class Tracker:
    """Follows one storage that a kernel writes. `follows_reads`: whether it also loads from it.

    Programs are numbers, -2 for several. Races are entered into `races`. clocks: where programs run one after the
    other, what each knows of the others.
    """

    def __init__(
        self, size: int, granule: int, follows_reads: bool, races: set[str], clocks: Clocks | None = None
    ) -> None:
        self._clocks = clocks
        self.follows_reads = follows_reads
        self._granule = granule
        self._places = size // granule
        self._races = races
        self._written: _Marks | None = None
        self._read: _Marks | None = None
        self._updated: _Marks | None = None  # by atomics
        self._since: torch.Tensor | None = None  # what was written in a loop that loads before its stores
        self._is_of_one = False  # some of which are atomic within one program only
        # not yet in `_written`; no positions once a barrier is passed
        self._rows: list[tuple[Lattice, torch.Tensor | None, torch.Tensor, torch.Tensor | None]] = []
        self._range = (0, 0)

    def written(self) -> Written:
        """Which places were written, atomically or not."""
        if self._written is None:
            flags = torch.zeros(self._places, dtype=torch.bool)
            for lattice, mask, _, _ in self._rows:
                view = torch.as_strided(flags, lattice.sizes, lattice.strides, lattice.start)
                if mask is None:
                    view.fill_(True)
                else:
                    view.logical_or_(mask)
        else:
            flags = self._written.programs != _NOBODY
        if self._updated is not None:
            flags |= self._updated.programs != _NOBODY
        return Written(granule=self._granule, flags=flags)

    def pass_barrier(self, programs: Lanes, active: torch.Tensor | None) -> None:
        """Note that programs pass a barrier: what their lanes did before is ordered before what they do next."""
        if active is None:
            self._rows = [(lattice, mask, owners, None) for lattice, mask, owners, _ in self._rows]
        else:
            self._settle()
        for marks in (self._written, self._read, self._updated):
            if marks is not None:
                marks.pass_barrier(programs, active)
        if self._since is not None:
            passed = True if active is None else _of_programs(self._settle().programs, programs, active)
            self._since.masked_fill_(torch.as_tensor(passed), False)

    def begin_loop(self) -> None:
        """Note from now on what is written."""
        self._since = torch.zeros(self._places, dtype=torch.bool)

    def end_loop(self) -> None:
        """Forget what was written since `begin_loop`."""
        self._since = None

    # ---- by rows

    def store_rows(
        self,
        lattice: Lattice,
        mask: torch.Tensor | None,
        programs: Lanes,
        levels: tuple[int, ...],
        positions: torch.Tensor,
        size: int,
        changes: Callable[[], torch.Tensor],
    ) -> None:
        """Note a store to a lattice of elements, of which no two are the same; the first axes are the programs.

        positions: (1, *axes of the tensor) · changes: says for each element whether the store changes its bits.
        """
        parts = size // self._granule
        ranks = len(lattice.sizes) - len(levels)
        if parts > 1:
            strides = tuple(stride * parts for stride in lattice.strides)
            lattice = Lattice(lattice.start * parts, (*lattice.sizes, parts), (*strides, 1))
            mask = None if mask is None else mask.unsqueeze(-1)
            positions = positions.unsqueeze(-1)
            ranks += 1
        owners = torch.from_numpy(programs).to(torch.int32).view((*levels, *([1] * ranks)))
        positions = positions.view((*([1] * len(levels)), *positions.shape[1:]))
        low, high = lattice.bounds
        is_alone = self._clocks is None and self._written is None and not self.follows_reads
        if is_alone and self._since is None and self._is_new(low, high):
            self._rows.append((lattice, None if mask is None else mask.clone(), owners, positions))
            return

        def pick(known: torch.Tensor) -> torch.Tensor:
            return torch.as_strided(known, lattice.sizes, lattice.strides, lattice.start)

        written = self._settle()
        self._compare_write(pick, owners, positions, changes if parts == 1 else lambda: changes().unsqueeze(-1), mask)
        written.put(lattice, mask, owners, positions)
        if self._since is not None:
            view = pick(self._since)
            view |= True if mask is None else mask

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

    def _settle(self) -> _Marks:
        """Everything that was written."""
        if self._written is None:
            self._written = _Marks(self._places, self._clocks)
        for lattice, mask, owners, positions in self._rows:
            self._written.put(lattice, mask, owners, torch.tensor(_NOBODY) if positions is None else positions)
        self._rows = []
        return self._written

    # ---- by index

    def _spread(self, size: int, *of_elements: torch.Tensor) -> list[torch.Tensor]:
        """Places of elements, and what else there is of each element."""
        index, *others = (one.reshape(-1) for one in of_elements)
        parts = size // self._granule
        if parts == 1:
            return [index, *others]
        places = (index * parts).unsqueeze(1) + torch.arange(parts)
        return [places.reshape(-1), *(one.unsqueeze(1).expand(-1, parts).reshape(-1) for one in others)]

    def read(
        self, index: torch.Tensor, programs: torch.Tensor, positions: torch.Tensor, size: int, *, early: bool = False
    ) -> None:
        """Note that programs read elements. early: a compiler takes the load before stores of its loop."""
        written = self._settle()
        places, programs, positions = self._spread(size, index, programs, positions)
        pick = _at(places)
        since = self._since if early else None
        if since is not None and bool((pick(since) & (pick(written.programs) == programs)).any()):
            self._races.add(_PIPELINED)
        self._compare(written, pick, programs, positions, "a program reads what another one wrote")
        self._compare(self._updated, pick, programs, positions, _ATOMICS)
        if self._read is None:
            self._read = _Marks(self._places, self._clocks)
        self._read.join(places, programs, positions)

    def before_write(
        self,
        index: torch.Tensor,
        programs: torch.Tensor,
        positions: torch.Tensor,
        size: int,
        old: torch.Tensor,
        new: torch.Tensor,
    ) -> None:
        """Note a store by index. old, new: the bits of the elements before and after."""
        written = self._settle()
        places, programs, positions, changed = self._spread(size, index, programs, positions, old != new)
        self._compare_write(_at(places), programs, positions, lambda: changed)
        written.replace(places, programs, positions)
        if self._since is not None:
            self._since[places] = True

    def after_write(self, stored: torch.Tensor, meant: torch.Tensor) -> None:
        """Compare what a store by index left with what it was meant to write."""
        if not torch.equal(stored, meant):
            self._races.add("one store writes different values to one place")

    def update(
        self,
        index: torch.Tensor,
        programs: torch.Tensor,
        positions: torch.Tensor,
        size: int,
        *,
        ordered: bool,
        of_one: bool,
    ) -> None:
        """Note atomic updates.

        ordered: what they give, or leave, depends on the updates before them · of_one: they are atomic within one
        program.
        """
        written = self._settle()
        places, programs, positions = self._spread(size, index, programs, positions)
        pick = _at(places)
        for marks in (written, self._read):
            self._compare(marks, pick, programs, positions, _ATOMICS)
        self._is_of_one = self._is_of_one or of_one
        if self._updated is None:
            self._updated = _Marks(self._places, self._clocks)
        elif ordered:
            self._compare(self._updated, pick, programs, positions, None)
        self._updated.join(places, programs, positions)
        if self._is_of_one and bool((pick(self._updated.programs) == _SEVERAL).any()):
            self._races.add(_SCOPE)

    # ---- comparisons

    def _compare_write(
        self,
        pick: Pick,
        programs: torch.Tensor,
        positions: torch.Tensor,
        changes: Callable[[], torch.Tensor],
        mask: torch.Tensor | None = None,
    ) -> None:
        self._compare(self._written, pick, programs, positions, "two programs write to one place", changes, mask)
        self._compare(self._read, pick, programs, positions, "a program writes what another one read", changes, mask)
        self._compare(self._updated, pick, programs, positions, _ATOMICS, None, mask)

    def _compare(
        self,
        marks: _Marks | None,
        pick: Pick,
        programs: torch.Tensor,
        positions: torch.Tensor,
        race: str | None,
        changes: Callable[[], torch.Tensor] | None = None,
        mask: torch.Tensor | None = None,
    ) -> None:
        """Add races with earlier accesses: `race` with those of other programs, and that of lanes of the same one."""
        if marks is None:
            return
        known = pick(marks.programs)
        seen = known != _NOBODY if mask is None else (known != _NOBODY) & mask
        if not bool(seen.any()):
            return
        same = (known == programs) & (known != _SEVERAL)
        if (past := marks.happened_before(pick)) is not None:
            seen = seen & (same | ~past)
        lanes = pick(marks.positions)
        apart = same & (lanes != _NOBODY) & ((lanes != positions) | (positions == _SEVERAL))
        for found, name in ((seen & ~same, race), (seen & apart, _LANES)):
            if name is None or name in self._races or not bool(found.any()):
                continue
            if changes is None or bool((found & changes()).any()):
                self._races.add(name)


def _of_programs(known: torch.Tensor, programs: Lanes, active: torch.Tensor) -> torch.Tensor:
    """Where `known` has one of the programs, which are consecutive, that are active."""
    number = known - int(programs[0])
    is_one = (number >= 0) & (number < len(programs))
    return is_one & active[number.clamp(0, len(programs) - 1).long()]


def _at(places: torch.Tensor) -> Pick:
    return lambda known: known.index_select(0, places)


def _join(known: torch.Tensor, places: torch.Tensor, numbers: torch.Tensor) -> None:
    """Enter numbers in (places,): several where another one, or two of these, are there already."""
    before = known.index_select(0, places)
    entered = torch.where((before == _NOBODY) | (before == numbers), numbers, _SEVERAL)
    known.index_copy_(0, places, entered)
    lost = known.index_select(0, places) != entered
    if bool(lost.any()):
        known[places[lost]] = _SEVERAL
