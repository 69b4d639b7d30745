"""The KV cache: one row for each running request, dense from row 0, written in place.

Invariant: rows 0..n-1 belong to the n running requests in their order; position p of a row holds the key and value
of that request's token p. Entries beyond a row's length are stale but finite, and masked by the reader. The cache is
neither paged nor shared between rows; beginnings of rows are copied. It grows by doubling, up to max_rows × max_length.
Of a mixture it also holds the experts that each token went to, which are copied with the token's keys and values.
"""

from __future__ import annotations

import math
import mmap
from typing import NamedTuple

import torch

_FIRST_LENGTH = 256
_FIRST_ROWS = 8


class CachedTokens(NamedTuple):
    """A copy of the first tokens of a row."""

    keys_values: torch.Tensor  # (layers × 2, kv heads, length, head dim): keys, then values
    experts: torch.Tensor  # (length, layers, chosen), as in the cache


class SlotCache:
    """Keys and values of every layer, (rows, kv heads, length, head dim); the layers' `past_key_values`."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        max_rows: int,
        max_length: int,
        dtype: torch.dtype,
        device: torch.device,
        num_chosen: int = 0,
    ) -> None:
        """`num_chosen`: how many experts a layer of a mixture chooses for a token."""
        self._shape = (num_kv_heads, head_dim)
        self._limits = (max_rows, max_length)
        self._kind = (dtype, device)
        self._num_layers = num_layers
        self._num_chosen = num_chosen
        self._positions: torch.Tensor | None = None  # where decode writes; None: a prefill
        self._written: tuple[torch.Tensor, ...] = ()  # rows and positions that an extension writes, and their sources
        self._num_used = 0  # rows from here on were never written
        self._allocate(min(_FIRST_ROWS, max_rows), min(_FIRST_LENGTH, max_length))

    @property
    def token_bytes(self) -> int:
        """The size of a token's keys and values in all layers."""
        num_heads, head_dim = self._shape
        return 2 * self._num_layers * num_heads * head_dim * self._kind[0].itemsize

    @property
    def capacity(self) -> tuple[int, int]:
        """The allocated rows and length."""
        rows, _, length, _ = self._keys[0].shape
        return rows, length

    def reserve(self, rows: int, length: int) -> None:
        """Grow to at least `rows` rows of `length` tokens; the content stays."""
        old_rows, old_length = self.capacity
        if rows <= old_rows and length <= old_length:
            return
        old_keys, old_values, old_experts, used = self._keys, self._values, self._experts, self._num_used
        self._allocate(
            _grown(old_rows, rows, self._limits[0]),
            _grown(old_length, length, self._limits[1]),
        )
        for new, old in zip(self._keys + self._values, old_keys + old_values, strict=True):
            new[:used, :, :old_length] = old[:used]
        self._experts[:used, :old_length] = old_experts[:used]
        self._num_used = used

    def begin_prefill(self, first_row: int) -> None:
        """The next forward pass writes whole prompts from position 0 of the rows from `first_row` on."""
        self._first_row = first_row
        self._positions = None
        self._written = ()

    def begin_extend(self, first_row: int, starts: list[int], lengths: list[int]) -> None:
        """The next forward pass continues the rows from `first_row` on: row i from `starts[i]` to `lengths[i]`.

        Its new tokens are padded on the right to the longest continuation; padding is not written.
        """
        self.begin_prefill(first_row)
        self._length = max(lengths)
        spans = [range(length - start) for start, length in zip(starts, lengths, strict=True)]
        rows = [row for row, span in enumerate(spans) for _ in span]
        places = [place for span in spans for place in span]
        positions = [start + place for start, span in zip(starts, spans, strict=True) for place in span]
        device = self._kind[1]
        self._written = tuple(torch.tensor(indices, device=device) for indices in (rows, places, positions))

    def begin_decode(self, positions: torch.Tensor, length: int) -> None:
        """The next forward pass writes one token to each of the first rows, at `positions` (n,); it reads `length`."""
        self._positions = positions
        self._rows = self._row_numbers[: positions.shape[0]]
        self._length = length
        self._written = ()

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (n, kv heads, new tokens, head dim) and return what this layer attends to; called by the model."""
        held_keys, held_values = self._keys[layer], self._values[layer]
        if self._written:
            return self._extended(keys, held_keys), self._extended(values, held_values)
        if self._positions is None:
            rows = slice(self._first_row, self._used_until(self._first_row + keys.shape[0]))
            held_keys[rows, :, : keys.shape[2]] = keys
            held_values[rows, :, : keys.shape[2]] = values
            return keys, values
        held_keys[self._rows, :, self._positions] = keys[:, :, 0]
        held_values[self._rows, :, self._positions] = values[:, :, 0]
        count = keys.shape[0]
        return held_keys[:count, :, : self._length], held_values[:count, :, : self._length]

    def _extended(self, new: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
        """Write an extension's keys or values, (n, kv heads, padded tokens, head dim); returns the whole rows."""
        rows, places, positions = self._written
        self._used_until(self._first_row + new.shape[0])
        held[self._first_row + rows, :, positions] = new[rows, :, places]
        return held[self._first_row : self._first_row + new.shape[0], :, : self._length]

    def route(self, layer: int, chosen: torch.Tensor) -> None:
        """Note the experts (n, t, chosen) that a layer chose for the tokens that `update` wrote."""
        held = self._experts[:, :, layer]
        if self._written:
            rows, places, positions = self._written
            held[self._first_row + rows, positions] = chosen[rows, places].to(held.dtype)
        elif self._positions is None:
            held[self._first_row : self._first_row + chosen.shape[0], : chosen.shape[1]] = chosen.to(held.dtype)
        else:
            held[self._rows, self._positions] = chosen[:, 0].to(held.dtype)

    def routed(self, row: int, start: int, end: int) -> torch.Tensor:
        """A copy of the experts of a row's tokens `start:end`, (tokens, layers, chosen) int32 in the host's memory."""
        return self._experts[row, start:end].to("cpu", torch.int32, copy=True)

    def copy_of(self, row: int, length: int) -> CachedTokens:
        """The first `length` tokens of a row."""
        keys_values = torch.stack([held[row, :, :length] for held in self._keys + self._values])
        return CachedTokens(keys_values, self._experts[row, :length].clone())

    def paste(self, row: int, cached: CachedTokens, length: int) -> None:
        """Write the first `length` tokens of what `copy_of` returned to a row."""
        self._used_until(row + 1)
        for held, source in zip(self._keys + self._values, cached.keys_values, strict=True):
            held[row, :, :length] = source[:, :length]
        self._experts[row, :length] = cached.experts[:length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of row `source` to row `target`."""
        self._used_until(target + 1)
        for held in self._keys + self._values:
            held[target, :, :length] = held[source, :, :length]
        self._experts[target, :length] = self._experts[source, :length]

    def _used_until(self, rows: int) -> int:
        """Note that the first `rows` rows may hold something; returns their number."""
        self._num_used = max(self._num_used, rows)
        return rows

    def clear(self) -> None:
        """Drop the content and free its memory."""
        self._allocate(min(_FIRST_ROWS, self._limits[0]), min(_FIRST_LENGTH, self._limits[1]))

    def _allocate(self, rows: int, length: int) -> None:
        dtype, device = self._kind
        num_kv_heads, head_dim = self._shape

        # Zeros, not empty: a masked value is multiplied by 0, and 0 times a stray NaN would be NaN.
        def tensors() -> list[torch.Tensor]:
            shape = (rows, num_kv_heads, length, head_dim)
            return [_zeros(shape, dtype, device) for _ in range(self._num_layers)]

        self._keys, self._values = tensors(), tensors()
        routed = (rows, length, self._num_layers, self._num_chosen)
        self._experts = torch.zeros(routed, dtype=torch.int16, device=device)
        self._num_used = 0
        self._row_numbers = torch.arange(rows, device=device)
        self._first_row = 0
        self._length = 0
        self._rows = self._row_numbers
        self._positions = None
        self._written = ()


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; on a CPU they take time and memory only where they are written: most of rows × length never is."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(shape)


def _grown(old: int, wanted: int, limit: int) -> int:
    return old if wanted <= old else min(limit, max(wanted, 2 * old))
