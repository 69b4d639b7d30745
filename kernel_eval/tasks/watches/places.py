"""Puts the places that a task computes where it compares its integers with them: few would be right by chance.

A label is the place of the largest logit once in as many evaluations as there are classes, and a drafted token the one
that its target would have taken as seldom.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from weir.kernel_eval.tasks.watches.pointwise import is_whole

_EQUALITIES = frozenset({"eq", "ne"})
_TAKEN_AT = {"nll_loss_forward": 1, "nll_loss2d_forward": 1, "gather": 2}  # of labels among the arguments
_SHARES = 0.25, 0.5, 1.0  # of an input that are put right, of which one is drawn for each row


class _Places(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active, integers of `own` become what they are compared with, in some places.

    `labels`: not those, but where they say which value of a row is taken, they say the place of the largest.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self, own: list[torch.Tensor], *, labels: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._labels = labels
        self._own = {tensor.untyped_storage().data_ptr() for tensor in own if tensor.numel()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.__name__.partition(".")[0]
        at = _TAKEN_AT.get(name, 0)
        if self._labels and len(args) > at > 0 and self._is_own(args[at]):
            _take_largest(args[at], args[0], args[1] if name == "gather" else min(1, args[0].dim() - 1))
        elif not self._labels and name in _EQUALITIES and all(map(_are_several, args[:2])):
            one, other = args[:2] if self._is_own(args[0]) else args[1::-1]
            if self._is_own(one) and not self._is_own(other):
                _put(one, other)
        return func(*args, **(kwargs or {}))

    def _is_own(self, value: torch.Tensor) -> bool:
        return value.untyped_storage().data_ptr() in self._own


def with_places(
    call: Callable[[list[Any]], Any], numbers: Collection[int], inputs: list[Any], *, labels: bool = False
) -> list[Any]:
    """Inputs in which some integers are what `call` compares them with; `numbers` of tensors say which may change.

    `labels`: those that say which value of a row `call` takes are the places of the largest instead.
    """
    changed: list[Any] = tree_map_only(torch.Tensor, torch.clone, inputs)
    tensors, given = _tensors(changed), _tensors(inputs)
    with _Places([tensors[number] for number in numbers], labels=labels):
        call(changed)
    for number in set(range(len(given))).difference(numbers):  # which the task may have changed
        tensors[number].copy_(given[number])
    return changed


def _tensors(inputs: list[Any]) -> list[torch.Tensor]:
    return [value for value in tree_leaves(inputs) if isinstance(value, torch.Tensor)]


def _take_largest(labels: torch.Tensor, values: torch.Tensor, dimension: int) -> None:
    """Labels that are no mark (-100) become the places of the largest values."""
    places = values.argmax(dimension, keepdim=labels.dim() == values.dim())
    if places.shape == labels.shape:
        labels.copy_(torch.where(labels < 0, labels, places.to(labels.dtype)))


def _put(one: torch.Tensor, other: torch.Tensor) -> None:
    """Some elements of `one` become one of those that they are compared with."""
    picked = torch.broadcast_tensors(other, one)[0]  # type: ignore[no-untyped-call]
    padded = (1,) * (picked.dim() - one.dim()) + tuple(one.shape)
    for dimension, (size, own) in enumerate(zip(picked.shape, padded, strict=True)):
        if own != size:
            at = torch.randint(size, (*picked.shape[:dimension], 1, *picked.shape[dimension + 1 :])).to(other.device)
            picked = picked.gather(dimension, at)
    rows = torch.tensor(_SHARES)[torch.randint(len(_SHARES), (*one.shape[:1], *(1 for _ in one.shape[1:])))]
    put = (torch.rand(one.shape) < rows).to(one.device)
    one.copy_(torch.where(put, picked.reshape(one.shape).to(one.dtype), one))


def _are_several(value: Any) -> bool:
    """Whether a value is a tensor of integers: a single one is a number that the task's code names."""
    return is_whole(value) and value.numel() > 1
