"""Runs a task's own code with one of its operators changed, and lists what could be changed in it."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from weir.scripts.bench.kernel_eval.mutants.changes import CHANGES, NotHere

TASK_FILE = "reference.py"  # as which a task is compiled


class Mutant(NamedTuple):
    """One change in a task's code: of an operator in a line, of which it is that call, or each one (`None`)."""

    line: int
    operator: str
    change: str
    call: int | None


class Changed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active, a mutant runs; without one, `seen` takes all mutants of what runs."""

    def __init__(self, mutant: Mutant | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mutant = mutant
        self._calls: dict[tuple[int, str], int] = {}
        self.seen: dict[tuple[int, str, str], list[int]] = {}
        self.num_changed = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, or what a change makes of it."""
        kwargs = kwargs or {}
        line, written = _line(), func.__name__.partition(".")[0]
        if not line:  # of a copy of the model
            return func(*args, **kwargs)
        name = written.rstrip("_")
        call = self._calls.get((line, name), 0)
        self._calls[line, name] = call + 1
        if self._mutant is None:
            for change, (operators, _) in CHANGES.items():
                if name in operators:
                    self.seen.setdefault((line, name, change), []).append(call)
        elif self._mutant[:2] == (line, name) and self._mutant.call in (None, call):
            return self._changed(func, written, args, kwargs)
        return func(*args, **kwargs)

    def _changed(self, func: Any, written: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._mutant is not None
        in_place = written.endswith("_")
        operator = getattr(torch.ops.aten, written.rstrip("_")) if in_place else func
        given = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in args)
        try:
            result = CHANGES[self._mutant.change].apply(operator, given, kwargs)
        except NotHere:
            return func(*args, **kwargs)
        self.num_changed += 1
        return args[0].copy_(result) if in_place else result

    def mutants(self) -> list[Mutant]:
        """Of calls in a loop, the first, the last, and all of them."""
        found = []
        for (line, name, change), calls in self.seen.items():
            chosen: list[int | None] = [*dict.fromkeys((calls[0], calls[-1])), *([None] if len(calls) > 2 else [])]
            found += [Mutant(line, name, change, call) for call in chosen]
        return sorted(found, key=lambda mutant: (*mutant[:3], -1 if mutant.call is None else mutant.call))


def _line() -> int:
    """The line of the task's code that runs; 0 for none."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != TASK_FILE:
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_lineno if frame is not None else 0
