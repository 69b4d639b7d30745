"""What memory holds that nothing has written: NaN, zeros, large numbers and tiny ones, side by side.

No content suits every kernel that reads such memory: zeros suit a sum, NaN and -1 a mask, large numbers a minimum, tiny
ones below zero a maximum. Therefore each word has one of four bytes, in an order that follows no kernel's strides, and
the next one in the next call. Pure.
"""

from __future__ import annotations

import functools

import torch

_BYTES = (0xFF, 0x00, 0x7F, 0x81)  # NaN and -1; zeros; large numbers; tiny numbers below zero
_WORD_BYTES, _NUM_WORDS = 8, 4099  # of which the second is a prime


def fill(memory: torch.Tensor, number: int = 0) -> torch.Tensor:
    """Fill bytes, shape (size,), as those that a call of this number finds; returns them."""
    pattern = _pattern(number % len(_BYTES), str(memory.device))
    whole = len(memory) // len(pattern) * len(pattern)
    memory[:whole].view(-1, len(pattern)).copy_(pattern)
    memory[whole:].copy_(pattern[: len(memory) - whole])
    return memory


@functools.cache
def _pattern(number: int, device: str) -> torch.Tensor:
    kinds = torch.randint(len(_BYTES), (_NUM_WORDS,), generator=torch.Generator().manual_seed(0), device="cpu")
    chosen = torch.tensor(_BYTES, dtype=torch.uint8, device="cpu")[(kinds - kinds[0] + number) % len(_BYTES)]
    return chosen.repeat_interleave(_WORD_BYTES).to(device)
