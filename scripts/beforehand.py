"""What a command needs, looked for before anything costs time: servers that answer, places to write to."""

from __future__ import annotations

import os
from pathlib import Path

import httpx

from weir.scripts.errors import UsageError

_PATIENCE_S = 30.0  # a server that is busy answers late


def require_judge(base_url: str, *, may_start: bool) -> None:
    """Raise `UsageError` where no kernel-evaluation server answers; its client waits for one that starts."""
    remedy = "start `weir kernel-eval`, or name one in [kernel_eval]"
    require_answer(
        f"{base_url.rstrip('/')}/health", "kernel-evaluation server", remedy, starting=503 if may_start else None
    )


def require_answer(url: str, name: str, remedy: str, *, starting: int | None = None) -> None:
    """Raise `UsageError` where nobody answers at a URL, or with an error other than the status of one that starts."""
    try:
        response = httpx.get(url, trust_env=False, timeout=_PATIENCE_S)
        if response.status_code != starting:
            response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"no {name} at {url.rpartition('/')[0]} ({reason}): {remedy}") from error


def require_folder(file: Path) -> None:
    """Raise `UsageError` where a file cannot be written for want of a folder that takes it."""
    if not file.parent.is_dir():
        raise UsageError(f"cannot write {file}: there is no folder {file.parent}; make it, or name another place")
    if file.is_dir():
        raise UsageError(f"cannot write {file}: it is a folder; name a file in it")
    if not os.access(file.parent, os.W_OK):
        raise UsageError(f"cannot write {file}: the folder {file.parent} takes no files; name another place")
