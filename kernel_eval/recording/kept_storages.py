"""Repeats, before a call's own steps, those of earlier calls that made what the model kept: tables of positions, say.

A record stands alone, so that what an earlier call left in memory that still lives has to be made anew. The steps are a
claim, like all of a record: what they leave out is memory that nobody wrote. Left out is what reads inputs of the
earlier call: the answer to a call does not depend on those of another, but by the state that a task keeps, which is a
parameter or a buffer. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from weir.kernel_eval.ipc.messages import Recorded
from weir.kernel_eval.ipc.trace import (
    OF_A_FORM,
    Argument,
    Descriptor,
    Launch,
    Many,
    Operator,
    Place,
    Step,
    Storage,
    Trace,
    operator_name,
    places,
)

# by position in a trace: the call that left a storage, and the position in that call's trace
Kept = Mapping[int, tuple[int, int]]


def with_kept(recorded: Recorded, kept: Kept, earlier: Sequence[Recorded]) -> Recorded:
    """A record that makes what it finds in memory of `earlier` calls, as their records say."""
    for call in sorted({call for call, _ in kept.values()}):
        storages = earlier[call].trace.storages
        found = {at: to for to, (of, at) in kept.items() if of == call and storages[at].kind in ("fresh", "remade")}
        recorded = _with_steps(recorded, earlier[call], found) if found else recorded
    return recorded


def _with_steps(recorded: Recorded, earlier: Recorded, found: Mapping[int, int]) -> Recorded:
    """`found`: the position in the record of each storage of the earlier one that is kept."""
    steps, touched = _makers(earlier.trace, set(found))
    storages = list(recorded.trace.storages)
    for position in found.values():
        storages[position] = msgspec.structs.replace(storages[position], kind="remade")
    positions = dict(found)
    for at in sorted(touched - found.keys()):
        storage = earlier.trace.storages[at]
        positions[at] = _position(storages, storage) if storage.kind == "state" else len(storages)
        if positions[at] == len(storages):
            storages.append(storage)
    irs, made_of = list(recorded.irs), list(recorded.made_of)
    repeated: list[Step] = []
    for step in steps:
        if isinstance(step, Launch) and step.ir is not None:
            ir = earlier.irs[step.ir]
            number = irs.index(ir) if ir in irs else len(irs)
            if number == len(irs):
                irs.append(ir)
                made_of += [None] * (number - len(made_of)) + list(earlier.made_of[step.ir : step.ir + 1])
            step = msgspec.structs.replace(step, ir=number)
        repeated.append(_moved(step, positions))
    own = recorded.trace
    num_repeated = len(repeated) + own.num_repeated
    trace = Trace(tuple(storages), (*repeated, *own.steps), own.outputs, num_repeated)
    return msgspec.structs.replace(recorded, trace=trace, irs=tuple(irs), made_of=tuple(made_of))


def _makers(trace: Trace, needed: set[int]) -> tuple[list[Step], set[int]]:
    """The steps that may have made storages, in order, and all storages that they touch; none of them is an input."""
    inputs = {at for at, storage in enumerate(trace.storages) if storage.kind in ("input", "earlier", "unknown")}
    kept: list[Step] = []
    for step in map(_without_form, reversed(trace.steps)):
        if isinstance(step, Operator):
            written = {place.storage for place in step.results}
            touched = written | {place.storage for place in places([*step.arguments, *step.keywords.values()])}
        else:
            written = touched = step.storages
        if written & needed and not touched & inputs:
            needed = needed | touched
            kept.append(step)
    return kept[::-1], needed


def _without_form(step: Step) -> Step:
    """An operator that takes no more than the form of a tensor (`zeros_like`) takes that of its own result."""
    if not isinstance(step, Operator) or operator_name(step) not in OF_A_FORM or len(step.results) != 1:
        return step
    return msgspec.structs.replace(step, arguments=(step.results[0], *step.arguments[1:]))


def _position(storages: Sequence[Storage], storage: Storage) -> int:
    """Where a piece of the state is among storages; behind them if it is not."""
    return next(
        (at for at, one in enumerate(storages) if (one.kind, one.index) == (storage.kind, storage.index)), len(storages)
    )


def _moved(step: Step, positions: Mapping[int, int]) -> Step:
    """A step whose tensors lie in other storages."""

    def moved(value: Argument) -> Argument:
        if isinstance(value, Place):
            return msgspec.structs.replace(value, storage=positions[value.storage])
        if isinstance(value, Descriptor):
            return msgspec.structs.replace(value, base=moved(value.base))
        if isinstance(value, Many):
            return msgspec.structs.replace(value, items=tuple(map(moved, value.items)))
        return value

    if isinstance(step, Operator):
        keywords = {name: moved(value) for name, value in step.keywords.items()}
        arguments, results = tuple(map(moved, step.arguments)), tuple(map(moved, step.results))
        return msgspec.structs.replace(step, arguments=arguments, keywords=keywords, results=results)
    if isinstance(step, Launch):
        given = tuple(map(moved, step.ir_arguments))
        named = [{name: moved(value) for name, value in part.items()} for part in (step.arguments, step.options)]
        return msgspec.structs.replace(step, arguments=named[0], options=named[1], ir_arguments=given, alternatives=())
    return step
