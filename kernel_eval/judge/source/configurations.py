"""The ways to make a call that the configurations of its autotuned kernels give, each as a record of its own. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from weir.kernel_eval.ipc.messages import KernelIr, Recorded
from weir.kernel_eval.ipc.trace import Launch, Step


def first_way(recorded: Recorded) -> Recorded:
    """The record with the first configuration of each kernel, and no IR but that of its launches."""
    return _with_steps(recorded, [_alone(step) for step in recorded.trace.steps])


def other_ways(recorded: Recorded) -> list[Recorded]:
    """The records with each other configuration, but for those that differ in options only: they compute the same.

    Where kernels have several, the first other one of all is taken together, then the second, and so on.
    """
    known = {_key(first_way(recorded))}
    found: list[Recorded] = []
    most = max((len(launch.alternatives) for launch in recorded.trace.launches), default=0)
    for number in range(most):
        way = _with_steps(recorded, [_chosen(step, number) for step in recorded.trace.steps])
        if (key := _key(way)) not in known:
            known.add(key)
            found.append(way)
    return found


def _chosen(step: Step, number: int) -> Step:
    """A launch with another configuration that touches nothing that the first does not; other steps as they are."""
    if isinstance(step, Launch) and number < len(step.alternatives):
        other = step.alternatives[number]
        return other if other.storages <= step.storages else _alone(step)
    return _alone(step)


def _alone(step: Step) -> Step:
    return msgspec.structs.replace(step, alternatives=()) if isinstance(step, Launch) else step


def _with_steps(recorded: Recorded, steps: list[Step]) -> Recorded:
    used = sorted({step.ir for step in steps if isinstance(step, Launch) and step.ir is not None})
    numbers = dict(zip(used, itertools.count(), strict=False))
    renumbered = tuple(_renumbered(step, numbers) for step in steps)
    irs = tuple(recorded.irs[number] for number in used)
    made_of = (*recorded.made_of, *[None] * (len(recorded.irs) - len(recorded.made_of)))
    trace = msgspec.structs.replace(recorded.trace, steps=renumbered)
    return msgspec.structs.replace(recorded, trace=trace, irs=irs, made_of=tuple(made_of[number] for number in used))


def _renumbered(step: Step, numbers: dict[int, int]) -> Step:
    if isinstance(step, Launch) and step.ir is not None:
        return msgspec.structs.replace(step, ir=numbers[step.ir])
    return step


def _key(way: Recorded) -> tuple[Any, ...]:
    """What the answer of a way follows from."""
    return tuple(_launches(way.irs, way.trace.launches))


def _launches(irs: tuple[KernelIr, ...], launches: list[Launch]) -> Iterator[Any]:
    for launch in launches:
        yield launch.grid, launch.ir_arguments, None if launch.ir is None else irs[launch.ir].text
