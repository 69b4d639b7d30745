"""What a command needs, looked for before anything costs time: servers that answer, places to write to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from weir.scripts.launch.errors import UsageError

if TYPE_CHECKING:
    from weir.kernel_eval.client import KernelEvalClient
    from weir.scripts.launch.settings import Settings

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


def look_for_judge(settings: Settings) -> None:
    """Raise `UsageError` where the server that agents ask too does not answer."""
    require_judge(_judge_url(settings), may_start=True)


def open_judge(settings: Settings) -> KernelEvalClient:
    """A client of the server that agents ask too."""
    from weir.kernel_eval.client import KernelEvalClient

    agents, judge = settings.agents, settings.kernel_eval
    key = judge.api_key if agents.kernel_eval_key is None else agents.kernel_eval_key.get_secret_value()
    return KernelEvalClient(_judge_url(settings), key)


def _judge_url(settings: Settings) -> str:
    return settings.agents.kernel_eval_url or settings.kernel_eval.base_url
