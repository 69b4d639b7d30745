"""What a launch did besides computing: which bytes it wrote, how much it computed, what depended on an order."""

from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass(slots=True)
class Counts:
    """Work, and facts that operations note. Work counts all programs, inactive ones included."""

    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    rounds_dots: bool = False
    reads_addresses: bool = False
    ordered: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Which bytes of a storage a launch wrote: one flag for each group of `granule` bytes."""

    granule: int
    flags: torch.Tensor  # (groups,) bool

    def bytes(self, size: int) -> torch.Tensor:
        """One flag for each byte of a storage of this size; (size,) bool."""
        spread = self.flags[:, None].expand(-1, self.granule).reshape(-1) if self.granule > 1 else self.flags
        result = torch.zeros(size, dtype=torch.bool)
        result[: min(size, len(spread))] = spread[:size]
        return result


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What one launch did.

    written: by number of the storage · races: what depended on the order of programs or lanes through loads and
    stores · ordered_atomics: atomics whose result depends on their order (`returned value`, `exchange`, `float sum`) ·
    rounds_dots: float32 dots were asked to round their inputs · reads_addresses: an address became a number ·
    steps: operations, each counted once for all programs that ran together.
    """

    written: dict[int, Written]
    races: frozenset[str]
    ordered_atomics: frozenset[str]
    rounds_dots: bool
    reads_addresses: bool
    flops: int
    bytes_read: int
    bytes_written: int
    programs: int
    steps: int
