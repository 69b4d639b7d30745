"""Parameters and buffers that start as one constant get other values, so that leaving them out changes the answer.

A layer's scale starts as ones and its shift as zeros, the running mean of a batch norm as zeros and its variance as
ones: with these, a kernel that ignores all four is right, and one that ignores a scale of 1e-6 is nearly right, with
the whole branch that it scales. Therefore all trials give what a checkpoint would load random values, the same in the
reference and in the candidate's state; constants above zero stay above zero, as a variance must. So do parameters that
start as the same values for every seed (the slope of a PReLU, a temperature, a ramp): each is scaled. Where a task
sets bounds for them, some trials have values that are far away, of either sign. Masks are flipped here and there. A
candidate's tensor is matched by its name, then by the last part of its name; those that are left by what they start as,
their number of elements, and their order. Pure: states are bytes, places are claims that are checked.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.ipc.messages import MAX_NAMED, NamedPlace
from weir.kernel_eval.ipc.trace import Place
from weir.kernel_eval.judge.state.counterparts import ReadBudget, last_part, loadable, view_of

_SHIFT_SCALE = 0.5  # of what replaces zeros; other constants are replaced by values from 0.5 to 1.5
_FAR = 8.0  # times as far, where bounds may be
_FLIPPED = 8  # one of so many booleans


_Kind = tuple[float | bytes, int]  # the value that a tensor has everywhere, or a digest; and its number of elements


class _Constant(NamedTuple):
    """A parameter or buffer of the reference that starts the same each time, and the values that replace it."""

    name: str
    kind: _Kind
    values: torch.Tensor


class VariedParameters:
    """The parameters and buffers of one task's model that get other values, and the model with those values."""

    def __init__(self, model: Any, seed: int, fixed: Collection[str] = (), far: bool = False) -> None:
        """`fixed`: the parameters that are the same for every seed of the weights. `far`: give them values far away."""
        loaded = loadable(model) if isinstance(model, torch.nn.Module) else ()
        named = {name: tensor for name, tensor in loaded if not tensor.is_complex()}
        kinds: dict[str, _Kind] = {}
        for name, tensor in named.items():
            kind = _kind(tensor.detach()) or (_digest(tensor.detach()) if name in fixed else None)
            if kind is not None:
                kinds[name] = kind
        generator = torch.Generator().manual_seed(seed)
        self._constants = [
            _Constant(name, kind, _draw(kind, named[name], generator, far)) for name, kind in kinds.items()
        ]
        self.model = model
        if kinds:
            kept = {id(p): p for name, p in model.named_parameters() if name not in kinds}
            self.model = copy.deepcopy(model, kept)
            own = dict(loadable(self.model))
            for constant in self._constants:
                _fill(own[constant.name].data, constant.values)

    def __bool__(self) -> bool:
        return bool(self._constants)

    @property
    def names(self) -> list[str]:
        """The reference's parameters and buffers that get other values."""
        return [constant.name for constant in self._constants]

    def in_state(
        self, state: Sequence[torch.Tensor], places: Sequence[NamedPlace]
    ) -> tuple[list[torch.Tensor], list[str]]:
        """A candidate's state (bytes of its storages) with those values, and the names that it has no tensor for."""
        found: dict[Place, NamedPlace] = {}
        for named in places[:MAX_NAMED]:
            found.setdefault(named.place, named)
        of_any = {kind[1] for _, kind, _ in self._constants}
        sizes = {kind[1] for _, kind, _ in self._constants if isinstance(kind[0], bytes)}
        budget = ReadBudget(self.model)
        kinds: dict[Place, _Kind] = {}
        for place in found:
            view = view_of(state, place)
            if view is None or view.numel() not in of_any:
                continue
            budget.take(view)
            kind = _kind(view)
            if kind is None and view.is_floating_point() and view.numel() in sizes:
                kind = _digest(view)
            if kind is not None:
                kinds[place] = kind
        matches = dict(_matches(self._constants, found, kinds))
        touched = {place.storage for place in matches.values()}
        varied = [piece.clone() if number in touched else piece for number, piece in enumerate(state)]
        for constant in self._constants:
            view = view_of(varied, matches[constant.name]) if constant.name in matches else None
            if view is not None:
                _fill(view, constant.values)
        return varied, [name for name in self.names if name not in matches]


def _matches(
    constants: Iterable[_Constant], found: dict[Place, NamedPlace], kinds: dict[Place, _Kind]
) -> Iterator[tuple[str, Place]]:
    """For each name of the reference's, the place in the candidate's state that stands for it."""
    free = dict(kinds)
    left = list(constants)
    for part_of in (_whole, last_part, _nothing):
        alike: dict[Any, list[Place]] = {}
        for place, kind in free.items():
            alike.setdefault((part_of(found[place].name), kind), []).append(place)
        for constant in list(left):
            places = alike.get((part_of(constant.name), constant.kind))
            if places:
                place = places.pop(0)
                del free[place]
                left.remove(constant)
                yield constant.name, place


def _whole(name: str) -> str:
    return name


def _nothing(name: str) -> str:
    return ""


def _kind(tensor: torch.Tensor) -> _Kind | None:
    """The value of a tensor that holds one value everywhere, and its number of elements; None for others.

    A single element counts only if it is one or zero: any single value is the same everywhere.
    """
    if tensor.is_complex() or tensor.numel() == 0:
        return None
    first = float(tensor.reshape(-1)[0])
    if not (tensor.is_floating_point() or tensor.dtype is torch.bool) and (first != 0 or tensor.numel() == 1):
        return None  # a count, or a place
    is_constant = bool((tensor == first).all()) and (tensor.numel() > 1 or first in (0.0, 1.0))
    return (first, tensor.numel()) if is_constant else None


def _digest(tensor: torch.Tensor) -> _Kind:
    values = tensor.float().contiguous().view(-1).view(torch.uint8)
    return hashlib.blake2b(values.cpu().numpy().data, digest_size=16).digest(), tensor.numel()


def _draw(kind: _Kind, own: torch.Tensor, generator: torch.Generator, far: bool) -> torch.Tensor:
    value, num_elements = kind
    is_parameter, own = isinstance(own, torch.nn.Parameter), own.detach()
    if own.dtype is torch.bool:
        return own.reshape(-1).cpu() ^ (torch.rand(num_elements, generator=generator) < 1 / _FLIPPED)
    if not own.is_floating_point():
        return torch.randint(2, (num_elements,), generator=generator)
    if far:
        usual = own.float().reshape(-1).cpu().abs().clamp_min(_SHIFT_SCALE)
        signs = (torch.randperm(num_elements, generator=generator) % 2) * 2 - 1  # both occur, by no chance
        return usual * torch.randn(num_elements, generator=generator).abs().clamp_min(0.5) * signs * _FAR
    if isinstance(value, bytes):
        flat = own.float().reshape(-1).cpu()
        scaled = flat * (torch.rand(num_elements, generator=generator) + 0.5)
        trained = (
            torch.randn(num_elements, generator=generator) * _SHIFT_SCALE
        )  # no checkpoint keeps zeros of a parameter
        return torch.where(flat == 0, trained, scaled) if is_parameter else scaled
    if value:
        return torch.rand(num_elements, generator=generator) + 0.5
    return torch.randn(num_elements, generator=generator) * _SHIFT_SCALE


def _fill(tensor: torch.Tensor, values: torch.Tensor) -> None:
    tensor.copy_(values.view(tensor.shape))
