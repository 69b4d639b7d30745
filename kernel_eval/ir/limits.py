"""How much text a module may have, and how much a launch may compute."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParseLimits:
    """Limits on the text of a module. `tensor_elements` is Triton's own limit."""

    text_bytes: int = 8 << 20
    operations: int = 100_000
    nesting: int = 64
    tensor_elements: int = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Limits on one launch, and how it computes where a device leaves a choice.

    memory_bytes: of values in flight · chunk_elements: elements of the largest tensor over all programs that run
    together · max_iterations: of one loop · max_steps: operations over all programs that run together · cpu_s: of this
    thread · round_tf32: float32 dots at precision tf32 round their inputs · exact_dots: dots compute in float64, and do
    not round their inputs · order: 0 runs programs, the lanes of atomics and the elements of reductions by their
    numbers; any other number is the seed of an order that a device may take as well.
    """

    memory_bytes: int = 2 << 30
    chunk_elements: int = 1 << 18
    max_programs: int = 1 << 22
    max_iterations: int = 1 << 22
    max_steps: int = 50_000_000
    max_calls: int = 64
    cpu_s: float = 60.0
    round_tf32: bool = False
    exact_dots: bool = False
    order: int = 0
