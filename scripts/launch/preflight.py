"""Checks before a command starts its work: servers that answer, places that can be written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from weir.scripts.launch.errors import UsageError

if TYPE_CHECKING:
    from weir.kernel_eval.client import KernelEvalClient
    from weir.scripts.launch.settings import Settings

_TIMEOUT_S = 30.0  # a busy server answers late


def require_judge(base_url: str, *, may_start: bool) -> None:
    """Raise UsageError where no kernel-evaluation server answers. `may_start`: one that still starts counts."""
    remedy = "start `weir kernel-eval`, or name one in [kernel_eval]"
    require_answer(
        f"{base_url.rstrip('/')}/health", "kernel-evaluation server", remedy, starting=503 if may_start else None
    )


def require_answer(url: str, name: str, remedy: str, *, starting: int | None = None) -> None:
    """Raise UsageError where a URL does not answer, or with an error status other than `starting`."""
    try:
        response = httpx.get(url, trust_env=False, timeout=_TIMEOUT_S)
        if response.status_code != starting:
            response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"no {name} at {url.rpartition('/')[0]} ({reason}): {remedy}") from error


def require_folder(file: Path) -> None:
    """Raise UsageError where the folder of a file does not exist or cannot be written."""
    if not file.parent.is_dir():
        raise UsageError(f"cannot write {file}: there is no folder {file.parent}; make it, or name another place")
    if file.is_dir():
        raise UsageError(f"cannot write {file}: it is a folder; name a file in it")
    if not os.access(file.parent, os.W_OK):
        raise UsageError(f"cannot write {file}: the folder {file.parent} is not writable; name another place")


def look_for_judge(settings: Settings) -> None:
    """Raise UsageError where the agents' kernel-evaluation server does not answer."""
    require_judge(_judge_url(settings), may_start=True)


def open_judge(settings: Settings) -> KernelEvalClient:
    """A client of the agents' kernel-evaluation server."""
    from weir.kernel_eval.client import KernelEvalClient

    agents, judge = settings.agents, settings.kernel_eval
    key = judge.api_key if agents.kernel_eval_key is None else agents.kernel_eval_key.get_secret_value()
    return KernelEvalClient(_judge_url(settings), key)


def _judge_url(settings: Settings) -> str:
    return settings.agents.kernel_eval_url or settings.kernel_eval.base_url
