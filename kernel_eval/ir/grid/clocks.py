"""What a program knows of the accesses of others: vector clocks, for programs that run one after the other.

A scalar atomic with release semantics tells at its address what its program did before its last barrier (other threads
of the program may not be further), and what it knows itself; one with acquire semantics learns what was told there. An
access whose writer or reader is known that far happens before the next one, in whatever order programs run: so a lock
and a program that arrives last work on a device (Lamport, "Time, clocks, and the ordering of events", 1978; the memory
model of the PTX ISA, "release and acquire patterns").
"""

from __future__ import annotations

import torch

MOST_PROGRAMS = 1 << 14  # a clock has one number for each, and each address has a clock
_ACQUIRES = frozenset({"acquire", "acq_rel"})
_RELEASES = frozenset({"release", "acq_rel"})


class Clocks:
    """The clock of the program that runs, and those that others left at addresses.

    now: grows at each of the program's barriers; accesses carry it.
    """

    def __init__(self, programs: int) -> None:
        self.now = 1
        self._program = 0
        self._known = torch.zeros(programs, dtype=torch.int32)  # by program: until when its accesses are known
        self._told: dict[int, torch.Tensor] = {}  # by address

    def start(self, program: int) -> None:
        """The next program begins, and knows nothing."""
        self.now, self._program = 1, program
        self._known.zero_()

    def synchronise(self, address: int, order: str) -> None:
        """A scalar atomic of the program, visible to the whole device."""
        told = self._told.get(address)
        if order in _ACQUIRES and told is not None:
            torch.maximum(self._known, told, out=self._known)
        if order in _RELEASES:
            mine = self._known.clone() if told is None else torch.maximum(self._known, told)
            mine[self._program] = self.now - 1
            self._told[address] = mine

    def knows(self, programs: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Whether accesses happened before what the program does now. programs: negative for nobody and several."""
        return (programs >= 0) & (self._known[programs.clamp(min=0).long()] >= times)
