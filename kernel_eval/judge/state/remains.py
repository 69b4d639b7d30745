"""What a call leaves in inputs and in the model's state, as further outputs of its record, and how it is compared.

A player writes outputs to where the judge reads them, and so it writes what is to be compared besides. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.ipc.tensor_arena import span_of
from weir.kernel_eval.ipc.trace import Place, Storage, StorageKind, Trace
from weir.kernel_eval.judge.state.counterparts import Counterpart
from weir.kernel_eval.tasks.answers import specials
from weir.kernel_eval.tasks.effects.side_effects import (
    SideEffects,
    WithEffects,
    differ,
    is_counter,
    named_tensors,
    tensors_of,
)


class Remains(NamedTuple):
    """Inputs by number, and what a model holds by name, whose contents after a call are compared, in this order.

    lacking: what the task's call changes of its model, and the candidate has no tensor for.
    """

    inputs: tuple[int, ...] = ()
    state: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.inputs or self.state)

    def of(self, model: Any) -> WithEffects:
        """A model that answers with them."""
        return WithEffects(model, self.inputs, self.state)

    def each(self) -> list[tuple[str, Remains]]:
        """Each of them alone, with how a message names it."""
        inputs = [(f"input {number}", Remains(inputs=(number,))) for number in self.inputs]
        return inputs + [(name, Remains(state=(name,))) for name in self.state]


def remains_of(effects: SideEffects, model: Any, held: dict[str, Counterpart]) -> Remains:
    """What is compared of what a task's call changes. `held`: where the candidate has it."""
    lacking = tuple(n for n, t in named_tensors(model) if n in effects.state and n not in held and not is_counter(t))
    return Remains(effects.inputs, tuple(name for name in effects.state if name in held), lacking)


def with_remains(
    trace: Trace, remains: Remains, held: dict[str, Counterpart], inputs: list[Any], state: Sequence[torch.Tensor]
) -> Trace:
    """The record with them as further outputs."""
    given, storages, places = tensors_of(inputs), list(trace.storages), list[Place]()
    for number in remains.inputs:
        tensor = given[number]
        span = span_of(tensor.shape, tensor.stride())
        at = _position(storages, "input", number, span * tensor.element_size())
        dtype = str(tensor.dtype).removeprefix("torch.")
        places.append(Place(at, dtype, tuple(tensor.shape), tuple(tensor.stride()), 0))
    for name in remains.state:
        place = held[name].place
        at = _position(storages, "state", place.storage, state[place.storage].numel())
        places.append(Place(at, place.dtype, place.shape, place.stride, place.offset))
    return Trace(tuple(storages), trace.steps, (*trace.outputs, *places), trace.num_repeated)


def may_stay(effects: SideEffects, one: Remains, left: torch.Tensor, inputs: list[Any], model: Any) -> bool:
    """Whether it is as it was before the call, and may be: an input that is spare, or a count of calls.

    A count, one integer, has to go on only where a later call's answer depends on it. `model`: as it was constructed.
    """
    if one.inputs:
        number = one.inputs[0]
        return number in effects.spare and not differ(left, tensors_of(inputs)[number])
    before = dict(named_tensors(model))[one.state[0]]
    return is_counter(before) and not differ(left.reshape(before.shape), before)


def comparable(
    one: Remains,
    want: torch.Tensor,
    left: torch.Tensor,
    inputs: list[Any],
    model: Any,
    precise: Callable[[], list[torch.Tensor] | None],
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a call of the task and one of the candidate leave, with zeros for NaN and infinities that roundings made.

    Those that were there before the call, as in a cache that is not full, have to be there, and those that float64
    gives, too, where it gives the same (`precise`): the task writes them. `model`: as it was before.
    """
    if bool(torch.isfinite(want).all()):
        return want, left
    before = tensors_of(inputs)[one.inputs[0]] if one.inputs else dict(named_tensors(model))[one.state[0]]
    before = before.detach().to(want.device)
    made = ~torch.isfinite(want) & (want != before) & ~(want.isnan() & before.isnan())
    exact = precise() if bool(made.any()) else None
    if exact is not None and torch.equal(specials(want), specials(exact[0])):
        return want, left
    return want.masked_fill(made, 0), left.masked_fill(made, 0)


def overwritten(
    effects: SideEffects,
    model: Any,
    held: dict[str, Counterpart],
    changed: Sequence[int],
    state: Sequence[torch.Tensor],
) -> str | None:
    """A tensor, by name, in a piece of the state that was changed, that the task's call leaves as it is.

    What fills the piece, or lies in it beside nothing that the task's call changes.
    """
    expected = {found.place.storage for name, found in held.items() if name in effects.state}
    for name, found in held.items():
        place = found.place
        if found.is_named and name not in effects.state and place.storage in changed:
            tensor = dict(named_tensors(model))[name]
            if tensor.nbytes == state[place.storage].numel() or place.storage not in expected:
                return name
    return None


def _position(storages: list[Storage], kind: StorageKind, index: int, num_bytes: int) -> int:
    """The position of a storage among those of a record, to which it is added if it is not there."""
    for position, storage in enumerate(storages):
        if (storage.kind, storage.index) == (kind, index):
            return position
    storages.append(Storage(kind, index, num_bytes))
    return len(storages) - 1
