"""The KV cache: one row for each running request, dense from row 0, written in place.

Invariant: rows 0..n-1 belong to the n running requests in their order; position p of a row holds the key and value
of that request's token p. Entries beyond a row's length are stale but finite, and masked by the reader. The cache is
neither paged nor shared between rows; it grows by doubling, up to max_rows × max_length.
"""

from __future__ import annotations

import torch

_FIRST_LENGTH = 256
_FIRST_ROWS = 8


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
    ) -> None:
        self._shape = (num_kv_heads, head_dim)
        self._limits = (max_rows, max_length)
        self._kind = (dtype, device)
        self._num_layers = num_layers
        self._positions: torch.Tensor | None = None  # where decode writes; None: a prefill
        self._allocate(min(_FIRST_ROWS, max_rows), min(_FIRST_LENGTH, max_length))

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
        old_keys, old_values = self._keys, self._values
        self._allocate(
            _grown(old_rows, rows, self._limits[0]),
            _grown(old_length, length, self._limits[1]),
        )
        for new, old in zip(self._keys + self._values, old_keys + old_values, strict=True):
            new[:old_rows, :, :old_length] = old

    def begin_prefill(self, first_row: int) -> None:
        """The next forward pass writes whole prompts from position 0 of the rows from `first_row` on."""
        self._first_row = first_row
        self._positions = None

    def begin_decode(self, positions: torch.Tensor, length: int) -> None:
        """The next forward pass writes one token to each of the first rows, at `positions` (n,); it reads `length`."""
        self._positions = positions
        self._rows = self._row_numbers[: positions.shape[0]]
        self._length = length

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (n, kv heads, new tokens, head dim) and return what this layer attends to; called by the model."""
        held_keys, held_values = self._keys[layer], self._values[layer]
        if self._positions is None:
            rows = slice(self._first_row, self._first_row + keys.shape[0])
            held_keys[rows, :, : keys.shape[2]] = keys
            held_values[rows, :, : keys.shape[2]] = values
            return keys, values
        held_keys[self._rows, :, self._positions] = keys[:, :, 0]
        held_values[self._rows, :, self._positions] = values[:, :, 0]
        count = keys.shape[0]
        return held_keys[:count, :, : self._length], held_values[:count, :, : self._length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of row `source` to row `target`."""
        for held in self._keys + self._values:
            held[target, :, :length] = held[source, :, :length]

    def clear(self) -> None:
        """Drop the content and free its memory."""
        self._allocate(min(_FIRST_ROWS, self._limits[0]), min(_FIRST_LENGTH, self._limits[1]))

    def _allocate(self, rows: int, length: int) -> None:
        dtype, device = self._kind
        num_kv_heads, head_dim = self._shape

        # Zeros, not empty: a masked value is multiplied by 0, and 0 times a stray NaN would be NaN.
        def tensors() -> list[torch.Tensor]:
            shape = (rows, num_kv_heads, length, head_dim)
            return [torch.zeros(shape, dtype=dtype, device=device) for _ in range(self._num_layers)]

        self._keys, self._values = tensors(), tensors()
        self._row_numbers = torch.arange(rows, device=device)
        self._first_row = 0
        self._length = 0
        self._rows = self._row_numbers
        self._positions = None


def _grown(old: int, wanted: int, limit: int) -> int:
    return old if wanted <= old else min(limit, max(wanted, 2 * old))
