"""Processes of their own for parts of a test: forked off a server that has one thread.

A fork of the process that runs the tests would inherit the locks that its other threads (an S3 server's, a file
system's, a metric's) hold at that moment, and wait for them for ever. What such a process runs has to be in a support
module: a test module cannot be imported by name. A process of tests has one such server: whoever started another one
first would leave it without what is imported here, which each fork would then import anew.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "support_sft",
        "support_store_processes",
        "weir.engine.transfer.group",
        "weir.trainer.learner.learner",
        "weir.trainer.trainer",
        "transformers.models.qwen3.modeling_qwen3",
    ]
)


def started(work: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """A process that does the work in the environment of this one; join it."""
    process = PROCESSES.Process(target=_run, args=(dict(os.environ), work, arguments))
    process.start()
    return process


def ended(work: Callable[..., None], *arguments: Any) -> int | None:
    """The exit code of a process that did the work; negative: the signal that ended it."""
    process = started(work, *arguments)
    process.join()
    return process.exitcode


def _run(environment: dict[str, str], work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment)  # the fork server has that of its start
    work(*arguments)
