"""Finds what a task's model holds in a candidate's state: tensors with the same values, by their names if they can.

Pure: states are bytes, places are claims that are checked. A thousand names of one large tensor would each be read, so
what is read is bounded by what the task's model holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.ipc.messages import MAX_NAMED, NamedPlace
from weir.kernel_eval.ipc.tensor_arena import DTYPES
from weir.kernel_eval.ipc.trace import Place
from weir.kernel_eval.judge.channel.faults import rule_broken
from weir.kernel_eval.tasks.effects.side_effects import named_tensors

MAX_DIMENSIONS = 64  # of a tensor that torch's operators take
_COPIES, _LEAST_READ = 16, 64 << 20  # of what a task's model holds; bytes that are read of small ones


class Counterpart(NamedTuple):
    """Where a candidate holds what its task's model holds. `is_named`: by a name that is, or ends, alike."""

    place: Place
    is_named: bool


class ReadBudget:
    """What may be read of a candidate's tensors: some times what its task's model holds."""

    def __init__(self, model: Any) -> None:
        self._most = max(_COPIES * sum(tensor.nbytes for _, tensor in named_tensors(model)), _LEAST_READ)
        self._left = self._most

    def take(self, view: torch.Tensor) -> None:
        """Note that a tensor is read. Raises `FaultDetected` if that is too much."""
        self._left -= view.nbytes
        if self._left < 0:
            message = f"its tensors that may be the task's have more than {self._most} bytes, which is all that is read"
            raise rule_broken("replay_differs", message)


def counterparts(
    model: Any, names: Collection[str], state: Sequence[torch.Tensor], places: Sequence[NamedPlace]
) -> dict[str, Counterpart]:
    """For parameters and buffers of the reference, by name, the tensor of a candidate that holds the same values.

    That of the same name is preferred, then one whose name ends alike, then the next. Raises `FaultDetected`.
    """
    free: dict[Place, str] = {}
    for named in places[:MAX_NAMED]:
        free.setdefault(named.place, named.name)
    own = {name: tensor.detach() for name, tensor in named_tensors(model)}
    budget = ReadBudget(model)
    held = {name: tensor for name, tensor in own.items() if name in names}
    sizes = {(tensor.numel(), tensor.dtype) for tensor in held.values()}
    alike: dict[Any, list[Place]] = {}
    for place in free:
        view = view_of(state, place)
        if view is not None and (view.numel(), view.dtype) in sizes:
            budget.take(view)
            alike.setdefault((view.dtype, _exact(view)), []).append(place)
    found: dict[str, Counterpart] = {}
    for part_of in (_whole, last_part, _nothing):
        for name, tensor in held.items():
            near = [] if name in found else alike.get((tensor.dtype, _exact(tensor)), [])
            match = next((one for one in near if part_of(free[one]) == part_of(name)), None)
            if match is not None:
                near.remove(match)
                found[name] = Counterpart(match, part_of is not _nothing)
    return found


def without_weights(
    state: Sequence[torch.Tensor], named: Sequence[NamedPlace], others: Mapping[str, torch.Tensor]
) -> frozenset[int]:
    """The pieces of a state, by number, that have a name and the same content with `others`, of other random weights.

    What a constructor makes of such weights is other content.
    """
    found: set[int] = set()
    for name, place in ((one.name, one.place) for one in named[:MAX_NAMED]):
        view, other = view_of(state, place), others.get(name)
        if view is None or other is None or view.nbytes != state[place.storage].numel():
            continue
        if (view.shape, view.dtype) == (other.shape, other.dtype) and _exact(view) == _exact(other):
            found.add(place.storage)
    return frozenset(found)


def _exact(tensor: torch.Tensor) -> bytes:
    """A digest of a tensor's values, whatever its shape."""
    values = tensor.contiguous().view(-1).view(torch.uint8)
    return hashlib.blake2b(values.cpu().numpy().data, digest_size=16).digest()


def loadable(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """What a checkpoint would load: parameters, then persistent buffers; other buffers belong to the model's code."""
    yield from model.named_parameters()
    for path, module in model.named_modules():
        for name, buffer in module.named_buffers(path, recurse=False):
            is_expanded = buffer.untyped_storage().nbytes() < buffer.numel() * buffer.element_size()
            if name.rpartition(".")[2] not in module._non_persistent_buffers_set and not is_expanded:
                yield name, buffer


def last_part(name: str) -> str:
    """The last part of a name in a model: that of the tensor itself."""
    return name.rpartition(".")[2]


def _whole(name: str) -> str:
    return name


def _nothing(name: str) -> str:
    return ""


def view_of(state: Sequence[torch.Tensor], place: Place) -> torch.Tensor | None:
    """The tensor at a place of the state; None if there is none."""
    dtype = DTYPES.get(place.dtype)
    if dtype is None or not 0 <= place.storage < len(state):
        return None
    memory = state[place.storage]
    whole = memory.numel() // dtype.itemsize
    if not len(place.shape) == len(place.stride) <= MAX_DIMENSIONS or min((*place.shape, 1)) < 1 or place.offset < 0:
        return None
    taken = 1  # elements from the first to the last, of the dimensions so far
    for step, size in sorted(zip(place.stride, place.shape, strict=True)):
        if size > 1 and step < taken:
            return None  # elements would share memory
        taken += (size - 1) * step
    if place.offset + taken > whole:
        return None
    strides = [step if size > 1 else 1 for step, size in zip(place.stride, place.shape, strict=True)]
    return memory[: whole * dtype.itemsize].view(dtype).as_strided(place.shape, strides, place.offset)
