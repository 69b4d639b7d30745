"""Atomic updates, in the order of programs, and of elements within a program, or in one drawn for each operation.

A device has no such order. `ordered` of the counts says where the result may depend on it: where a returned value is
used and several programs or lanes meet, where exchanges meet, and where floats are added.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from weir.kernel_eval.ir.errors import Unsupported
from weir.kernel_eval.ir.grid.accesses import block_of, source_block
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.integers import apply
from weir.kernel_eval.ir.grid.memory import AtomicLanes, pattern_of
from weir.kernel_eval.ir.grid.values import dtype_of
from weir.kernel_eval.ir.module import Operation
from weir.kernel_eval.ir.types import Scalar, Tensor, Type, element_of, shape_of

Update = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_INTEGER_KINDS = {
    "add": "arith.addi",
    "and": "arith.andi",
    "or": "arith.ori",
    "xor": "arith.xori",
    "max": "arith.maxsi",
    "min": "arith.minsi",
    "umax": "arith.maxui",
    "umin": "arith.minui",
}
_EXCHANGES = ("exch", "xchg")
_AT_ONCE = {"add": "sum", "fadd": "sum", "max": "amax", "min": "amin"}


def _rounds(frame: Frame, index: torch.Tensor) -> list[torch.Tensor]:
    """Positions in which every index occurs at most once: the first occurrences, then the second ones, and so on."""
    order = frame.machine.order(len(index))
    if order is None:
        return _occurrences(index)
    return [order[positions] for positions in _occurrences(index[order])]


def _occurrences(index: torch.Tensor) -> list[torch.Tensor]:
    order = torch.argsort(index, stable=True)
    ordered = index[order]
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    places = torch.arange(len(ordered))
    rank = places - torch.cummax(torch.where(first, places, 0), dim=0).values
    if int(rank.max()) == 0:
        return [torch.arange(len(index))]
    by_rank = torch.argsort(rank, stable=True)
    counts = torch.bincount(rank)
    return list(torch.split(order[by_rank], counts.tolist()))


def _flat(
    frame: Frame, values: list[torch.Tensor], shape: tuple[int, ...], mask: torch.Tensor | None
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Values of all elements where the mask and the programs are active, and where that is."""
    full = (frame.lanes, *shape)
    ones = [1] * len(shape)
    chosen = torch.ones(full, dtype=torch.bool) if mask is None else mask.expand(full)
    if frame.active is not None:
        chosen = chosen & frame.active.view(-1, *ones)
    return [value.expand(full)[chosen] for value in values], chosen


def _update_of(kind: str, element: Scalar) -> Update:
    if kind in _EXCHANGES:
        return lambda old, new: new
    if kind == "fadd" or (element.is_float and kind == "add"):
        return torch.add
    if element.is_float:
        return {"max": torch.maximum, "min": torch.minimum}[kind]
    return lambda old, new: apply(_INTEGER_KINDS[kind], old, new, element.bits)


def _update(
    frame: Frame,
    addresses: torch.Tensor,
    value: torch.Tensor,
    element: Scalar,
    kind: str,
    lanes: AtomicLanes,
    used: bool,
) -> torch.Tensor:
    """Update flat elements one after the other; the values before each update. used: whether those are."""
    returned = torch.zeros_like(value)
    for _, where, index, view in frame.machine.memory.place(addresses, element, lanes):
        part = value if where is None else value[where]
        if (
            not used
            and kind in _AT_ONCE
            and element.bits >= 32
            and not (element.is_float and kind != "fadd" and kind != "add")
        ):
            order = frame.machine.order(len(index)) if element.is_float else None
            if order is not None:
                index, part = index[order], part[order]
            view.scatter_reduce_(0, index, part, reduce=_AT_ONCE[kind], include_self=True)
            _note_order(frame, kind, element, len(index) > 1)
            continue
        update = _update_of(kind, element)
        rounds = _rounds(frame, index)
        _note_order(frame, kind, element, len(rounds) > 1, used)
        old = torch.zeros_like(part)
        for positions in rounds:
            at = index[positions]
            before = view.index_select(0, at)
            old[positions] = before
            view.index_copy_(0, at, update(before, part[positions]).to(view.dtype))
        if where is None:
            returned = old
        else:
            returned[where] = old
    return returned


def _note_order(frame: Frame, kind: str, element: Scalar, meet: bool, used: bool = False) -> None:
    ordered = frame.machine.counts.ordered
    if element.is_float and kind in ("fadd", "add"):
        ordered.add("float sum")
    if kind in (*_EXCHANGES, "cas") and (meet or frame.machine.num_programs > 1):
        ordered.add("exchange")
    if used and (meet or frame.machine.num_programs > 1):
        ordered.add("returned value")


def _atomic_rmw(frame: Frame, operation: Operation) -> torch.Tensor:
    kind = frame.result_kind(operation)
    element, shape = _number(kind), shape_of(kind)
    mask = frame.tensor(operation.operands[2]) if len(operation.operands) > 2 else None
    values = [frame.tensor(number) for number in operation.operands[:2]]
    (addresses, value), chosen = _flat(frame, values, shape, mask)
    pattern = pattern_of(frame.value(operation.operands[0]))
    used = operation.attributes.setdefault("used", operation.results[0] not in operation.dead)
    update = operation.attributes["kind"]
    of_one, ordered = operation.attributes["scope"] == "cta", used or update in _EXCHANGES
    lanes = AtomicLanes(shape=shape, pattern=pattern, chosen=chosen, ordered=ordered, of_one=of_one)
    returned = _update(frame, addresses, value, element, update, lanes, used)
    _synchronise(frame, operation, addresses)
    result = torch.zeros(chosen.shape, dtype=dtype_of(kind))
    result[chosen] = returned
    return result


def _atomic_cas(frame: Frame, operation: Operation) -> torch.Tensor:
    kind = frame.result_kind(operation)
    element, shape = _number(kind), shape_of(kind)
    (addresses, compared, value), chosen = _flat(frame, frame.tensors(operation), shape, None)
    pattern = pattern_of(frame.value(operation.operands[0]))
    of_one = operation.attributes["scope"] == "cta"
    lanes = AtomicLanes(shape=shape, pattern=pattern, chosen=chosen, ordered=True, of_one=of_one)
    returned = torch.zeros_like(value)
    for _, where, index, view in frame.machine.memory.place(addresses, element, lanes):
        parts = [one if where is None else one[where] for one in (compared, value)]
        old = torch.zeros_like(parts[1])
        rounds = _rounds(frame, index)
        _note_order(frame, "cas", element, len(rounds) > 1, True)
        for positions in rounds:
            at = index[positions]
            before = view.index_select(0, at)
            old[positions] = before
            view.index_copy_(0, at, torch.where(before == parts[0][positions], parts[1][positions], before))
        if where is None:
            returned = old
        else:
            returned[where] = old
    _synchronise(frame, operation, addresses)
    result = torch.zeros(chosen.shape, dtype=dtype_of(kind))
    result[chosen] = returned
    return result


def _synchronise(frame: Frame, operation: Operation, addresses: torch.Tensor) -> None:
    """Tell and learn at an address what is known of other programs, where they run one after the other."""
    clocks = frame.machine.memory.clocks
    is_scalar = addresses.numel() == 1 and not shape_of(frame.result_kind(operation))
    if clocks is not None and is_scalar and operation.attributes["scope"] != "cta":
        clocks.synchronise(int(addresses), operation.attributes["order"])


def _number(kind: Type) -> Scalar:
    element = element_of(kind)
    if not isinstance(element, Scalar) or element.name.startswith("f8"):
        raise Unsupported(f"atomics on {element}")
    return element


def _descriptor_reduce(frame: Frame, operation: Operation) -> None:
    block, _, kind = source_block(frame, operation.operands[0], operation.operands[2:])
    assert isinstance(kind, Tensor)
    element = _number(kind)
    addresses, mask = block_of(block, kind.shape, element.size, tuple(range(len(kind.shape))))
    value = frame.tensor(operation.operands[1])
    value = value.expand(value.shape[0], *shape_of(frame.kind(operation, 1))).reshape(value.shape[0], *kind.shape)
    places = addresses if isinstance(addresses, torch.Tensor) else addresses.tensor()
    (flat, part), chosen = _flat(frame, [places, value], kind.shape, mask)
    lanes = AtomicLanes(shape=kind.shape, pattern=pattern_of(addresses), chosen=chosen, ordered=False)
    name = operation.attributes["kind"]
    _update(frame, flat, part, element, "fadd" if element.is_float and name == "add" else name, lanes, False)


HANDLERS: dict[str, Handler] = {
    "tt.atomic_rmw": _atomic_rmw,
    "tt.atomic_cas": _atomic_cas,
    "tt.descriptor_reduce": _descriptor_reduce,
}
