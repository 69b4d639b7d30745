"""The storages of a launch in an address space of their own: every access is checked against them.

The storage of number n begins at address (n + 1) << 40. Invariant: nothing outside the storages is read or written,
whatever addresses a kernel computes. A regular pattern of addresses (`Lattice`) is accessed as a strided view, any
other one by an index for each element.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from weir.kernel_eval.ir.errors import KernelFault
from weir.kernel_eval.ir.grid.clocks import Clocks
from weir.kernel_eval.ir.grid.lattice import Lattice, progression
from weir.kernel_eval.ir.grid.tracking import Pattern, Positions, Tracker
from weir.kernel_eval.ir.grid.values import Affine, Lanes, Value, dtype_of
from weir.kernel_eval.ir.types import Scalar

_SHIFT = 40
_MIN_ELEMENTS_OF_A_ROW = 16


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A piece of memory that a launch may read, and write if it is writable. memory: (size,) uint8, contiguous."""

    memory: torch.Tensor
    writable: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AtomicLanes:
    """Which lanes change memory atomically.

    shape: of their tensor · pattern: of its addresses · chosen: (programs, *shape) bool ·
    ordered: what the operation gives or leaves depends on the order of lanes at one place ·
    of_one: it is atomic within one program, and not for others.
    """

    shape: tuple[int, ...]
    pattern: Pattern
    chosen: torch.Tensor
    ordered: bool
    of_one: bool = False


def address_of(storage: int, offset: int) -> int:
    """The address of a byte of a storage."""
    return ((storage + 1) << _SHIFT) + offset


class Memory:
    """Loads and stores of all programs of a chunk. `programs` are their numbers.

    read_only: storages that no operation of the kernel can write, so that loads may give views of them. clocks: those
    of the trackers, where programs run one after the other.
    """

    def __init__(self, storages: list[Storage], trackers: dict[int, Tracker], clocks: Clocks | None = None) -> None:
        self._storages = storages
        self._trackers = trackers
        self.clocks = clocks
        self._positions = Positions()
        self.is_early = False  # the next load is one that its loop takes before its stores
        self.programs: Lanes = np.zeros(1, dtype=np.int64)

    # ---- where addresses lie

    def _number(self, low: int, high: int, verb: str) -> int:
        number = (low >> _SHIFT) - 1
        if low >> _SHIFT != high >> _SHIFT or not 0 <= number < len(self._storages):
            raise KernelFault("out_of_bounds", f"a kernel {verb} outside the tensors it was given")
        return number

    def _view(self, number: int, kind: Scalar, verb: str) -> torch.Tensor:
        """A storage as elements; (elements,)."""
        storage = self._storages[number]
        if verb != "loads" and not storage.writable:
            raise KernelFault("read_only", f"a kernel {verb} a tensor that it may only read")
        size = kind.size
        memory = storage.memory
        dtype = torch.uint8 if kind.name == "i1" else dtype_of(kind)
        return memory[: memory.numel() // size * size].view(dtype)

    def _lattice(self, addresses: Affine, size: int) -> tuple[int, Lanes, tuple[int, ...]] | None:
        """The storage, the element where each program starts, and steps in elements; None if some lie elsewhere."""
        low, high = addresses.low >> _SHIFT, addresses.high >> _SHIFT
        number = low - 1
        if low != high or not 0 <= number < len(self._storages):
            return None
        start = low << _SHIFT
        if addresses.low < start or addresses.high - start + size > self._storages[number].memory.numel():
            return None
        if any(step % size or step < 0 for step in addresses.steps):
            return None
        bases = addresses.base - start
        if size > 1:
            if (bases & (size - 1)).any():
                return None
            bases = bases >> (size.bit_length() - 1)
        return number, bases, tuple(step // size for step in addresses.steps)

    # ---- loads

    def begin_loop(self) -> None:
        """Note what a loop stores that takes some loads before."""
        for tracker in self._trackers.values():
            tracker.begin_loop()

    def end_loop(self) -> None:
        """The end of such a loop."""
        for tracker in self._trackers.values():
            tracker.end_loop()

    def load(
        self,
        addresses: Affine | torch.Tensor,
        kind: Scalar,
        shape: tuple[int, ...],
        mask: torch.Tensor | None,
        active: torch.Tensor | None,
    ) -> torch.Tensor:
        """The elements at addresses in bytes; (programs or 1, *axes), 1 where they do not vary.

        mask: where to load, or None · active: (programs,) or None, true somewhere; elsewhere the result is anything.
        Raises KernelFault.
        """
        pattern = pattern_of(addresses)
        if isinstance(addresses, Affine):
            loaded = self._load_rows(addresses, kind, shape, mask, active)
            if loaded is not None:
                return loaded.bool() if kind.name == "i1" else loaded
            addresses = addresses.tensor()
        if active is not None:
            running = active.view(-1, *([1] * len(shape)))
            mask = running if mask is None else mask & running
        flat, chosen = _aligned(addresses, mask)
        result = self._load_elements(flat, kind, shape, chosen, pattern)
        result = result.view(_joint_shape(addresses, mask))
        return result.bool() if kind.name == "i1" else result

    def _load_rows(
        self,
        addresses: Affine,
        kind: Scalar,
        shape: tuple[int, ...],
        mask: torch.Tensor | None,
        active: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """The elements where addresses form rows within a storage, masked ones included; else None."""
        if active is not None:
            addresses = _inactive_at(addresses, active)
        found = self._lattice(addresses, kind.size)
        if found is None:
            return None
        number, bases, steps = found
        view = self._view(number, kind, "loads")
        sizes = tuple(size if step else 1 for size, step in zip(addresses.shape, steps, strict=True))
        tracker = self._trackers.get(number)
        if tracker is not None and tracker.follows_reads:
            if mask is not None or active is not None:
                return None
            self._track_read(tracker, bases, sizes, steps, kind.size, shape, pattern_of(addresses))
        levels = progression(bases)
        if levels is not None and min(levels[1], default=0) >= 0:
            rows = torch.as_strided(view, levels[0] + sizes, levels[1] + steps, int(bases[0]))
            rows = rows if tracker is None else rows.clone()
            return rows.reshape(len(bases), *sizes)
        unique, inverse = np.unique(bases, return_inverse=True)
        levels = progression(unique)
        if levels is not None and (len(unique) * 2 <= len(bases) or levels):
            rows = torch.as_strided(view, levels[0] + sizes, levels[1] + steps, int(unique[0]))
            return rows.reshape(len(unique), *sizes).index_select(0, torch.from_numpy(inverse))
        if int(np.prod(sizes)) < _MIN_ELEMENTS_OF_A_ROW:
            return None
        rows = torch.stack([torch.as_strided(view, sizes, steps, int(base)) for base in unique])
        return rows.index_select(0, torch.from_numpy(inverse))

    def _track_read(
        self,
        tracker: Tracker,
        bases: Lanes,
        sizes: tuple[int, ...],
        steps: tuple[int, ...],
        size: int,
        shape: tuple[int, ...],
        pattern: Pattern,
    ) -> None:
        """`bases` may have one entry for all programs, which then all read the same elements."""
        offsets = Affine(np.broadcast_to(bases, len(self.programs)).copy(), steps, sizes).tensor()
        full = (len(self.programs), *sizes)
        positions = self._positions.of(shape, pattern, sizes).expand(full)
        programs = self._programs_like(torch.Size(full))
        tracker.read(offsets.expand(full), programs, positions, size, early=self.is_early)

    def _programs_like(self, shape: torch.Size) -> torch.Tensor:
        programs = torch.from_numpy(self.programs).to(torch.int32)
        return programs.view(-1, *([1] * (len(shape) - 1))).expand(shape)

    def _load_elements(
        self,
        flat: torch.Tensor,
        kind: Scalar,
        shape: tuple[int, ...],
        active: torch.Tensor | None,
        pattern: Pattern,
    ) -> torch.Tensor:
        """flat, active: of one shape, which the result has; with 1 for axes of `shape` along which they do not vary."""
        chosen = flat if active is None else flat[active]
        result = torch.zeros(flat.shape, dtype=torch.uint8 if kind.name == "i1" else dtype_of(kind))
        if chosen.numel() == 0:
            return result
        loaded = torch.zeros(chosen.shape, dtype=result.dtype)
        for number, where, index in self._split(chosen, kind.size, "loads"):
            view = self._view(number, kind, "loads")
            tracker = self._trackers.get(number)
            if tracker is not None and tracker.follows_reads:
                positions = self._positions.of(shape, pattern, tuple(flat.shape[1:])).expand(flat.shape)
                of_lanes = [self._programs_of(flat, active), _chosen(positions, active)]
                programs, positions = (one if where is None else one[where] for one in of_lanes)
                tracker.read(index, programs, positions, kind.size, early=self.is_early)
            if where is None:
                loaded = view.index_select(0, index.reshape(-1)).view(chosen.shape)
            else:
                loaded[where] = view.index_select(0, index)
        if active is None:
            return loaded.view(flat.shape)
        result[active] = loaded
        return result

    def _programs_of(self, flat: torch.Tensor, active: torch.Tensor | None) -> torch.Tensor:
        """The program of each active element, (elements,) int32."""
        if flat.shape[0] != len(self.programs):  # one row that every program loads
            lanes = torch.full(flat.shape, -2 if len(self.programs) > 1 else int(self.programs[0]), dtype=torch.int32)
        else:
            lanes = self._programs_like(flat.shape)
        return _chosen(lanes, active)

    def _split(self, chosen: torch.Tensor, size: int, verb: str) -> list[tuple[int, torch.Tensor | None, torch.Tensor]]:
        """For each storage that addresses lie in: its number, which addresses (None: all), and element indices."""
        chosen = chosen.reshape(-1)
        low, high = (int(bound) for bound in torch.aminmax(chosen))
        if low >> _SHIFT == high >> _SHIFT:
            parts: list[tuple[int, Any]] = [(self._number(low, high, verb), None)]
        else:
            places = chosen >> _SHIFT
            parts = [
                (self._number(int(p) << _SHIFT, int(p) << _SHIFT, verb), places == p) for p in torch.unique(places)
            ]
        found = []
        for number, where in parts:
            offsets = (chosen if where is None else chosen[where]) - address_of(number, 0)
            low, high = (int(bound) for bound in torch.aminmax(offsets))
            if low < 0 or high + size > self._storages[number].memory.numel():
                raise KernelFault("out_of_bounds", f"a kernel {verb} elements outside the tensors it was given")
            if size > 1 and bool((offsets & (size - 1)).any()):
                raise KernelFault(
                    "misaligned", f"a kernel {verb} elements at addresses that are no multiple of their size"
                )
            found.append((number, where, offsets >> (size.bit_length() - 1)))
        return found

    # ---- stores

    def store(
        self,
        addresses: Affine | torch.Tensor,
        value: torch.Tensor,
        kind: Scalar,
        shape: tuple[int, ...],
        mask: torch.Tensor | None,
        active: torch.Tensor | None,
    ) -> None:
        """Write elements. value, mask: with 1 for axes along which they do not vary · active: (programs,) or None.

        Raises KernelFault.
        """
        programs = self.programs
        if active is not None:
            rows = active.expand(len(programs)).nonzero().reshape(-1)
            if len(rows) == 0:
                return
            programs = programs[rows.numpy()]
            addresses, value = _rows_of(addresses, rows), _rows_of(value, rows)
            mask = None if mask is None else _rows_of(mask, rows)
        if kind.name == "i1":
            value = value.to(torch.uint8)
        pattern = pattern_of(addresses)
        if isinstance(addresses, Affine):
            found = self._lattice(addresses, kind.size)
            if found is not None and self._store_rows(found, value, kind, addresses, mask, programs):
                return
            addresses = addresses.tensor()
        self._store_elements(addresses, value, kind, shape, mask, programs, pattern)

    def _store_rows(
        self,
        found: tuple[int, Lanes, tuple[int, ...]],
        value: torch.Tensor,
        kind: Scalar,
        addresses: Affine,
        mask: torch.Tensor | None,
        programs: Lanes,
    ) -> bool:
        number, bases, steps = found
        shape = addresses.shape
        if len(bases) != len(programs) or any(step == 0 and size > 1 for step, size in zip(steps, shape, strict=True)):
            return False
        levels = progression(bases)
        if levels is None or min(levels[1], default=0) < 0:
            order = np.argsort(bases, kind="stable")
            bases, programs = bases[order], programs[order]
            levels = progression(bases)
            if levels is None:
                return False
            rows = torch.from_numpy(order)
            value = _rows_of(value, rows)
            mask = None if mask is None else _rows_of(mask, rows)
        lattice = Lattice(int(bases[0]), levels[0] + shape, levels[1] + steps)
        if not lattice.injective:
            return False
        full = levels[0] + shape
        view = torch.as_strided(self._view(number, kind, "stores"), full, lattice.strides, lattice.start)
        value = _with_levels(value, levels[0], shape)
        if mask is not None:
            mask = _with_levels(mask, levels[0], shape)
            value = torch.where(mask, value, view)
        self._trackers[number].store_rows(
            lattice,
            mask,
            programs,
            levels[0],
            self._positions.of(shape, pattern_of(addresses)),
            kind.size,
            lambda: _bits(value.contiguous()) != _bits(view),
        )
        view.copy_(value)
        return True

    def _store_elements(
        self,
        addresses: torch.Tensor,
        value: torch.Tensor,
        kind: Scalar,
        shape: tuple[int, ...],
        mask: torch.Tensor | None,
        programs: Lanes,
        pattern: Pattern,
    ) -> None:
        full = (len(programs), *shape)
        flat = addresses.expand(full).reshape(-1)
        value = value.expand(full).reshape(-1)
        owners = torch.from_numpy(programs).to(torch.int32).view(-1, *([1] * len(shape))).expand(full).reshape(-1)
        positions = self._positions.of(shape, pattern).expand(full).reshape(-1)
        if mask is not None:
            chosen = mask.expand(full).reshape(-1)
            flat, value, owners, positions = (one[chosen] for one in (flat, value, owners, positions))
        if flat.numel() == 0:
            return
        for number, where, index in self._split(flat, kind.size, "stores"):
            view = self._view(number, kind, "stores")
            part, of, at = (one if where is None else one[where] for one in (value, owners, positions))
            tracker = self._trackers[number]
            tracker.before_write(index, of, at, kind.size, _bits(view.index_select(0, index)), _bits(part))
            view.index_copy_(0, index, part)
            tracker.after_write(_bits(view.index_select(0, index)), _bits(part))

    # ---- atomics

    def place(
        self, addresses: torch.Tensor, kind: Scalar, lanes: AtomicLanes
    ) -> list[tuple[int, torch.Tensor | None, torch.Tensor, torch.Tensor]]:
        """For each storage that flat addresses lie in: number, which (None: all), element indices, its elements.

        Notes that lanes change these elements atomically. Raises KernelFault.
        """
        if addresses.numel() == 0:
            return []
        positions = _chosen(self._positions.of(lanes.shape, lanes.pattern).expand(lanes.chosen.shape), lanes.chosen)
        programs = _chosen(self._programs_like(lanes.chosen.shape), lanes.chosen)
        found = []
        for number, where, index in self._split(addresses, kind.size, "updates"):
            view = self._view(number, kind, "updates")
            of, at = (one if where is None else one[where] for one in (programs, positions))
            self._trackers[number].update(index, of, at, kind.size, ordered=lanes.ordered, of_one=lanes.of_one)
            found.append((number, where, index, view))
        return found

    def barrier(self, active: torch.Tensor | None) -> None:
        """Note that programs pass a barrier. active: (programs,) or None for all."""
        if self.clocks is not None:
            self.clocks.now += 1
        for tracker in self._trackers.values():
            tracker.pass_barrier(self.programs, active)


def pattern_of(addresses: Value) -> Pattern:
    """How the addresses of neighbours differ, where that is the same everywhere."""
    return addresses.steps if isinstance(addresses, Affine) else None


def _chosen(values: torch.Tensor, chosen: torch.Tensor | None) -> torch.Tensor:
    return values.reshape(-1) if chosen is None else values[chosen]


def _inactive_at(addresses: Affine, active: torch.Tensor) -> Affine:
    """Inactive programs load what an active one loads, so that any address of theirs is allowed."""
    if len(addresses.base) == 1:
        return addresses
    base = addresses.base.copy()
    base[~active.numpy()] = base[int(active.to(torch.uint8).argmax())]
    return Affine(base, addresses.steps, addresses.shape)


def _rows_of(value: Any, rows: torch.Tensor) -> Any:
    if isinstance(value, Affine):
        return value if len(value.base) == 1 else Affine(value.base[rows.numpy()], value.steps, value.shape)
    return value if value.shape[0] == 1 else value.index_select(0, rows)


def _with_levels(value: torch.Tensor, levels: tuple[int, ...], shape: tuple[int, ...]) -> torch.Tensor:
    """Split the programs' axis."""
    rows = value.shape[0]
    value = value.expand(rows, *shape)
    return value[0].expand((*levels, *shape)) if rows == 1 else value.reshape((*levels, *shape))


def _joint_shape(addresses: torch.Tensor, mask: torch.Tensor | None) -> torch.Size:
    return addresses.shape if mask is None else torch.Size(np.broadcast_shapes(addresses.shape, mask.shape))


def _aligned(addresses: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Addresses and mask of one shape."""
    if mask is None:
        return addresses, None
    if mask.numel() == 1 and bool(mask):
        return addresses, None
    shape = torch.Size(np.broadcast_shapes(addresses.shape, mask.shape))
    return addresses.expand(shape), mask.expand(shape)


def _bits(value: torch.Tensor) -> torch.Tensor:
    """Elements as integers of the same size, so that comparisons are of bits."""
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return value.view(sizes[value.element_size()])
