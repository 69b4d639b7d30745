"""Guard zones around the tensors that a candidate allocates, and poison in those that it leaves uninitialised.

`torch.empty` and similar functions return a view into a larger buffer: guard, data, guard. The guards are checked after
the call. They are as untrusted as their process: a candidate can hide an overrun, but gains nothing, because the judge
compares its answer. They report mistakes of honest candidates that a device would not notice. Guards are 0xFB bytes,
which read as large finite numbers, so that reading too far gives a wrong answer. For workers on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from weir.kernel_eval.ipc import unwritten
from weir.kernel_eval.ipc.tensor_arena import span_of

_GUARD = 0xFB
_MAX_HELD_BYTES = 64 << 20
_UNINITIALISED = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)
_FILLED = (
    *(torch.zeros, torch.zeros_like, torch.ones, torch.ones_like, torch.full, torch.full_like),
    *(torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_full, torch.clone, torch.Tensor.clone),
)


class GuardedAllocations(TorchFunctionMode):
    """While the mode is active, allocations are guarded."""

    def __init__(self, guard_bytes: int) -> None:
        super().__init__()
        self._guard_bytes = guard_bytes
        self._held: list[tuple[torch.Tensor, int, str]] = []
        self._held_bytes = 0
        self._num_unwritten = 0
        self._overrun: str | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _FILLED:
            return self._guarded(result, keep=True)
        if func in _UNINITIALISED:
            return self._guarded(result, keep=False)
        return result

    def take_overrun(self) -> str | None:
        """A message about a tensor that was written out of bounds since the last call, or None; forgets the tensors."""
        self._check_held()
        overrun, self._overrun = self._overrun, None
        return overrun

    def _guarded(self, tensor: torch.Tensor, *, keep: bool) -> torch.Tensor:
        if (
            type(tensor) is not torch.Tensor
            or tensor.numel() == 0
            or tensor.requires_grad
            or tensor.device.type not in ("cpu", "cuda")
        ):
            return tensor
        data_bytes = span_of(tensor.shape, tensor.stride()) * tensor.itemsize
        padded_bytes = (data_bytes + 63) // 64 * 64
        buffer = torch.full((padded_bytes + 2 * self._guard_bytes,), _GUARD, dtype=torch.uint8, device=tensor.device)
        body = buffer[self._guard_bytes : self._guard_bytes + data_bytes]
        if not keep:
            unwritten.fill(body, self._num_unwritten)
            self._num_unwritten += 1
        flat = body.view(tensor.dtype)
        data = flat.as_strided(tensor.shape, tensor.stride(), flat.storage_offset())
        if keep:
            data.copy_(tensor)
        self._held.append((buffer, data_bytes, f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"))
        self._held_bytes += buffer.numel()
        if self._held_bytes > _MAX_HELD_BYTES:
            self._check_held()
        return data

    def _check_held(self) -> None:
        for buffer, data_bytes, what in self._held:
            before, after = buffer[: self._guard_bytes], buffer[self._guard_bytes + data_bytes :]
            if self._overrun is None and not (bool((before == _GUARD).all()) and bool((after == _GUARD).all())):
                self._overrun = f"a tensor {what} that the candidate allocated was written to outside its bounds"
        self._held.clear()
        self._held_bytes = 0
