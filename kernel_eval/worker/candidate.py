"""Imports a candidate's source in a contained process, for every kind of worker."""

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
    """The candidate's ModelNew; None if it defines none."""
    model = getattr(module, "ModelNew", None)
    return model if callable(model) else None


def kernel_id(function: types.FunctionType) -> str:
    """The id of a kernel, equal in interpreter and compiler: its name and the line where it starts."""
    return f"{function.__name__}:{function.__code__.co_firstlineno}"
