"""What memory holds that nothing has written: NaN, zeros, large numbers, tiny ones and ones, side by side.

No content suits every kernel that reads such memory: zeros suit a sum, NaN and -1 a mask, large numbers a minimum, tiny
ones below zero a maximum, and what is not one a flag. Therefore each word has one of some contents, in an order that
follows no kernel's strides, and the next one in the next call. Pure.
"""

from __future__ import annotations

import functools

import torch

# NaN and -1, or large numbers, in every other call: zeros, ones of bytes and of integers, and tiny numbers in the rest
_WORDS = [bytes([byte] * 8) for byte in (0xFF, 0x00, 0x7F, 0x01, 0xFF, 0x81, 0x7F)] + [(1).to_bytes(8, "little")]
_NUM_WORDS = 4099  # a prime


def fill(memory: torch.Tensor, number: int = 0) -> torch.Tensor:
    """Fill bytes, shape (size,), as those that a call of this number finds; returns them."""
    pattern = _pattern(number % len(_WORDS), str(memory.device))
    whole = len(memory) // len(pattern) * len(pattern)
    memory[:whole].view(-1, len(pattern)).copy_(pattern)
    memory[whole:].copy_(pattern[: len(memory) - whole])
    return memory


@functools.cache
def _pattern(number: int, device: str) -> torch.Tensor:
    kinds = torch.randint(len(_WORDS), (_NUM_WORDS,), generator=torch.Generator().manual_seed(0), device="cpu")
    words = torch.tensor([list(word) for word in _WORDS], dtype=torch.uint8, device="cpu")
    return words[(kinds - kinds[0] + number) % len(_WORDS)].view(-1).to(device)
