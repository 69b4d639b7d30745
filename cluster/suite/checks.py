"""A figure of the simulator beside the one that it should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One comparison.

    Attributes:
        name: What is compared.
        expected: By a formula, or as published.
        simulated: By the simulator.
        tolerance: Greatest relative difference.
    """

    name: str
    expected: float
    simulated: float
    tolerance: float

    @property
    def error(self) -> float:
        """The relative difference."""
        return abs(self.simulated - self.expected) / abs(self.expected)

    @property
    def met(self) -> bool:
        """Whether it is within the tolerance."""
        return self.error <= self.tolerance

    def figures(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "expected": round(self.expected, 4),
            "simulated": round(self.simulated, 4),
            "error": round(self.error, 4),
            "met": self.met,
        }
