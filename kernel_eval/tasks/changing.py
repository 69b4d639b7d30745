"""Changes of one tensor among the inputs of a call, which is named by its number among their tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from weir.kernel_eval.tasks.draws.equal_values import in_order_of
from weir.kernel_eval.tasks.input_draws import has_few_values, slices, sums_to_one, unsliced
from weir.kernel_eval.tasks.rows import spare

_SHARE = 16  # one of so many slices is replaced
_HALF_RANGE = 1e3  # of what half precision holds, in the scales of values

Change = Callable[[torch.Tensor], torch.Tensor]


def each_tensor(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from each_tensor(item)
    elif isinstance(value, torch.Tensor):
        yield value


def is_drawn(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 1 and not has_few_values(tensor)


def changing(at: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[list[Any]], list[Any]]:
    """The change of one tensor, by its number among the inputs' tensors."""

    def apply(inputs: list[Any]) -> list[Any]:
        numbers = iter(range(1 << 30))
        return [_with_change(value, numbers, at, change) for value in inputs]

    return apply


def _with_change(value: Any, numbers: Iterator[int], at: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_with_change(item, numbers, at, change) for item in value)
    if not isinstance(value, torch.Tensor) or next(numbers) != at:
        return value
    changed = change(value)
    if changed is value:
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(in_order_of(changed, value))


def of_scale(scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(value: torch.Tensor) -> torch.Tensor:
        if scale * _HALF_RANGE > torch.finfo(value.dtype).max or sums_to_one(value):
            return value
        changed = slices(value)
        chosen = spare(changed, max(1, len(changed) // _SHARE))
        changed[chosen] = torch.randn_like(changed[chosen]) * scale
        return unsliced(changed, value)

    return change
