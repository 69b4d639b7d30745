"""Imports users' functions and classes by path, and formats the errors that they raise as one line.

Invariant: every error of users' code, also during its import, is reported with its type and the place that raised it.
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
        raise TrainerUsageError(f"cannot import {path!r}: it raised {in_a_line(error)}; fix it") from error
    if not callable(found):
        raise TrainerUsageError(f"{path!r} is a {type(found).__name__}, expected a function")
    return found  # type: ignore[no-any-return]


def in_a_line(error: BaseException) -> str:
    """An error's type, its message and, unless the call itself raised it, the file and line that did."""
    message = " ".join(str(error).split())
    line = f"{type(error).__name__}: {message}" if message else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or Path(frames[-1].filename).is_relative_to(Path(__file__).parent):
        return line
    return f"{line} ({Path(frames[-1].filename).name} line {frames[-1].lineno})"
