"""Importing a candidate's source, in a process that is contained. Used by every kind of worker."""

from __future__ import annotations

import sys
import types
from typing import Any

FILE_NAME = "candidate.py"
MODULE_NAME = "candidate"


def load_candidate(source: str, folder: str) -> types.ModuleType:
    """Execute the source as a module. Raises whatever the candidate raises."""
    path = f"{folder}/{FILE_NAME}"
    with open(path, "w", encoding="utf-8") as file:  # Triton reads a kernel's source from its file
        file.write(source)
    module = types.ModuleType(MODULE_NAME)
    module.__file__ = path
    sys.modules[MODULE_NAME] = module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def entry_point(module: types.ModuleType) -> Any | None:
    """What is constructed and called: ModelNew; None where there is no such thing."""
    found = getattr(module, "ModelNew", None)
    return found if callable(found) else None


def kernel_id(function: types.FunctionType) -> str:
    """A kernel as both the interpreter and the compiler see it: its name and the line where it starts."""
    return f"{function.__name__}:{function.__code__.co_firstlineno}"
