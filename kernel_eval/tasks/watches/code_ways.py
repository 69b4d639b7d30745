"""Which ways the Python of a task's own code takes in one call: its jumps, and what `min` and `max` chose."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Self

import torch

Way = tuple[object, ...]
_START = -1  # before a frame's first instruction


class CodeWays:
    """While it is entered, the ways of one call are noted.

    A way is a pair of instructions of the task's code of which one was executed after the other, or the position of the
    number that `min` or `max` chose. A way that only one of two calls takes is one that their inputs decided.
    """

    def __init__(self, names: dict[str, Any], file_name: str) -> None:
        """`names`: the globals of the task's module. `file_name`: that its code was compiled with."""
        self.ways: set[Way] = set()
        self._names = names
        self._file_name = file_name
        self._added: list[str] = []
        self._last: dict[FrameType, int] = {}

    def __enter__(self) -> Self:
        for name in ("min", "max"):
            if name not in self._names:
                self._names[name] = self._noting(getattr(builtins, name), name)
                self._added.append(name)
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        for name in self._added:
            del self._names[name]
        self._last.clear()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            if frame.f_code.co_filename != self._file_name:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._last[frame] = _START
        elif event == "opcode":
            self.ways.add((_name(frame.f_code), self._last[frame], frame.f_lasti))
            self._last[frame] = frame.f_lasti
        elif event == "return":
            self._last.pop(frame, None)
        return self._trace

    def _noting(self, choose: Callable[..., Any], name: str) -> Callable[..., Any]:
        def chosen(*given: Any, **others: Any) -> Any:
            result = choose(*given, **others)
            if len(given) > 1 and not any(isinstance(value, torch.Tensor) and value.numel() > 1 for value in given):
                self.ways.add((name, sys._getframe(1).f_lineno, next(i for i, v in enumerate(given) if v is result)))
            return result

        return chosen


def _name(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno
