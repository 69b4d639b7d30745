"""Functions and classes of users, named by import path: how they are found, and what they raise as one line.

Invariant: whatever users' code raises, also while it is imported, is told with its kind and the place where it was
raised. Not here: what such code is called with (`hooks.py`, `function_rewards.py`, `backend.py`).
"""

from __future__ import annotations

import pkgutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weir.trainer.errors import TrainerUsageError


def import_function(path: str) -> Callable[..., Any]:
    """The callable named "pkg.mod:name".

    Raises `TrainerUsageError` where the path has another form, names nothing, or names nothing callable, and where the
    module raises while it is imported.
    """
    try:
        if ":" not in path:
            raise ValueError("there is no colon in it")
        found = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise TrainerUsageError(f'cannot import {path!r}: {error}; the form is "pkg.mod:name"') from error
    except (Exception, SystemExit) as error:  # users' code: whatever runs while it is imported
        raise TrainerUsageError(f"cannot import {path!r}: it raised {in_a_line(error)}; mend it") from error
    if not callable(found):
        raise TrainerUsageError(f"{path!r} is a {type(found).__name__}, expected a function")
    return found  # type: ignore[no-any-return]


def in_a_line(error: BaseException) -> str:
    """The kind of an error, its message and, unless it was raised by the call itself, its place."""
    said = " ".join(str(error).split())
    told = f"{type(error).__name__}: {said}" if said else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or Path(frames[-1].filename).is_relative_to(Path(__file__).parent):
        return told
    return f"{told} ({Path(frames[-1].filename).name} line {frames[-1].lineno})"
