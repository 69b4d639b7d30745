"""What a call of a task's model changes beside its answer: inputs, parameters, buffers, and what else a model keeps.

Found out once for each task, on a copy of the model and of inputs of the task's own. A kernel has to leave the same
behind as its task does (`judge/checks/played_trials.py`). An input may stay as it is where the task only saves memory:
where activations alone write to it, or where the answer is that input's memory, so that the caller has the values.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ACTIVATIONS = frozenset(
    {
        *("relu_", "relu6_", "hardtanh_", "threshold_", "leaky_relu_", "rrelu_", "rrelu_with_noise_", "elu_", "celu_"),
        *("selu_", "gelu_", "silu_", "mish_", "hardswish_", "hardsigmoid_", "sigmoid_", "tanh_"),
    }
)


class SideEffects(NamedTuple):
    """The tensors among the inputs that a call writes to, by number, and what it changes of the model, by name.

    spare: inputs that may stay as they are · keeps: whether the model differs after a call, in whatever it holds ·
    fewest: the elements of the smallest tensor that it returns, 0 if it returns none · returns_state: those, by
    number, that lie in the memory of a parameter or buffer · returns_sequence: whether they come in a list or a tuple.
    """

    inputs: tuple[int, ...] = ()
    spare: frozenset[int] = frozenset()
    state: tuple[str, ...] = ()
    keeps: bool = False
    fewest: int = 0
    returns_state: frozenset[int] = frozenset()
    returns_sequence: bool = False


class _Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active, the operators that write to tensors are noted, by the address of the storage."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.to: dict[int, set[str]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        for number, parameter in enumerate(func._schema.arguments):
            if parameter.alias_info is not None and parameter.alias_info.is_write:
                value = args[number] if number < len(args) else given.get(parameter.name)
                for tensor in tensors_of(value):
                    self.to.setdefault(_storage(tensor), set()).add(func.__name__.partition(".")[0])
        return func(*args, **given)


class WithEffects(torch.nn.Module):
    """A model whose answer is what its call leaves of some inputs, and of parameters and buffers."""

    def __init__(self, model: Any, inputs: tuple[int, ...], state: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self._inputs = inputs
        self._state = state

    def forward(self, *inputs: Any) -> list[torch.Tensor]:
        """As in the class."""
        self.model(*inputs)
        given, held = tensors_of(list(inputs)), dict(named_tensors(self.model))
        return [given[number].clone() for number in self._inputs] + [held[name].clone() for name in self._state]


class Advancing:
    """A model that is called itself, where others are copied before a call that changes them."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __deepcopy__(self, memo: Any) -> Advancing:
        return self

    def __call__(self, *inputs: Any) -> Any:
        return self.model(*inputs)


def side_effects(model: Any, inputs: list[Any], watch: contextlib.AbstractContextManager[Any]) -> SideEffects:
    """What a call with these inputs changes; neither they nor the model are changed. Raises what the model raises.

    `watch`: is entered for the call.
    """
    called, own = _copied(model), copy.deepcopy(inputs)
    given, before = tensors_of(own), list(_attributes(called))
    held = dict(named_tensors(called))
    with watch, _Writes() as writes:
        answer = called(*own)
    fewest = min((tensor.numel() for tensor in tensors_of(answer)), default=0)
    returned = {_storage(tensor) for tensor in tensors_of(answer) if tensor.numel()}
    written = [
        number
        for number, (now, then) in enumerate(zip(given, tensors_of(inputs), strict=True))
        if now.numel() and (_storage(now) in writes.to or differ(now, then))
    ]
    in_place = {n for n in written if writes.to.get(_storage(given[n]), {""}) <= _ACTIVATIONS}
    spare = in_place | {n for n in written if _storage(given[n]) in returned}
    of_state = {_storage(tensor) for tensor in held.values() if tensor.numel()}
    returns_state = frozenset(at for at, tensor in enumerate(tensors_of(answer)) if _storage(tensor) in of_state)
    of_answer = fewest, returns_state, isinstance(answer, list | tuple)
    if called is model:
        return SideEffects(tuple(written), frozenset(spare), (), False, *of_answer)
    after, then = dict(named_tensors(called)), dict(named_tensors(model))
    state = tuple(
        name
        for name, tensor in after.items()
        if name in held and (_storage(held[name]) in writes.to or differ(tensor, then[name]))
    )
    keeps = bool(state) or _have_changed(before, list(_attributes(called)), list(_attributes(model)))
    same_form = tuple(name for name in state if _form(after[name]) == _form(then[name]))
    return SideEffects(tuple(written), frozenset(spare), same_form, keeps, *of_answer)


def _copied(model: Any) -> Any:
    """A copy of a model; the model itself where it holds what cannot be copied."""
    try:
        return copy.deepcopy(model)
    except Exception:  # whatever its parts raise
        return model


def changed_inputs(now: list[Any], before: list[Any]) -> frozenset[int]:
    """The tensors among inputs that a call has changed, by number."""
    pairs = zip(tensors_of(now), tensors_of(before), strict=True)
    return frozenset(number for number, (one, two) in enumerate(pairs) if differ(one, two))


def named_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters of a model, then its buffers, by name; none where it is no module."""
    if isinstance(model, torch.nn.Module):
        yield from model.named_parameters()
        yield from model.named_buffers()


def is_counter(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one integer or boolean."""
    return tensor.numel() == 1 and not (tensor.is_floating_point() or tensor.is_complex())


def tensors_of(values: Any) -> list[torch.Tensor]:
    """All tensors among (nested) values, in order."""
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def differ(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors differ in form or in values; NaN with the same bits are the same."""
    if one is two:
        return False
    if _form(one) != _form(two):
        return True
    return not torch.equal(one, two) and not torch.equal(_bytes(one), _bytes(two))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def _form(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _attributes(model: Any) -> Iterator[tuple[str, Any]]:
    """What a model and the modules in it hold beside parameters and buffers, by name."""
    parts = model.named_modules() if isinstance(model, torch.nn.Module) else [("", model)]
    for path, part in parts:
        for name, value in getattr(part, "__dict__", {}).items():
            yield f"{path}.{name}", value


def _have_changed(before: list[Any], after: list[Any], original: list[Any]) -> bool:
    """Whether attributes were set anew, or a tensor among them was written to."""
    if [name for name, _ in before] != [name for name, _ in after]:
        return True
    if any(one is not two for (_, one), (_, two) in zip(before, after, strict=True)):
        return True
    return any(
        isinstance(now, torch.Tensor) and isinstance(then, torch.Tensor) and differ(now, then)
        for (_, now), (_, then) in zip(after, original, strict=False)
    )
