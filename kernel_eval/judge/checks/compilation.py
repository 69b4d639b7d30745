"""The compilation of a candidate by its own code: for a candidate that failed already, or whose task needs no proof.

A compile worker (untrusted) runs the model with each launch replaced by a compilation. Invariant: what it says can give
the reason why a candidate failed, and nothing else, except where a task relaxes the proof: there a kernel that was
launched in a trial must at least be among what it sent, as text that the assembler takes. Everything that passes the
proof is compiled by `build.py` instead.
"""

from __future__ import annotations

import time
from typing import Any

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.framing import MAX_FRAME_BYTES
from weir.kernel_eval.ipc.messages import Compile, Compiled
from weir.kernel_eval.judge.channel.deadline import Patience
from weir.kernel_eval.judge.channel.job import Found
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks.assembly import describe, refused_for
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage


def explain(leases: Leases, limits: Limits, patience: Patience, question: Compile, fds: tuple[int, ...]) -> None:
    """For a candidate that failed: raises `Found` where the compiler already refuses a kernel of it."""
    compiled, printed = _compile(leases, limits, patience, question, fds)
    for refused in compiled.refused:
        raise refused_for(refused, limits.target, printed)


def report(
    leases: Leases,
    limits: Limits,
    patience: Patience,
    question: Compile,
    fds: tuple[int, ...],
    launched: frozenset[str],
) -> dict[str, Any]:
    """For one that is right without a proof: what to report. Raises `Found` where a launched kernel is not built."""
    started = time.monotonic()
    compiled, printed = _compile(leases, limits, patience, question, fds)
    for refused in compiled.refused:
        if refused.kernel in launched:
            raise refused_for(refused, limits.target, printed)
    missing = sorted(launched - {built.kernel for built in compiled.built})
    if missing:
        raise _not_reached(missing, compiled.stopped)
    kernels = [describe(leases.program, limits, built) for built in compiled.built]
    return {"target": limits.target, "kernels": kernels, "seconds": round(time.monotonic() - started, 4)}


def _compile(
    leases: Leases, limits: Limits, patience: Patience, question: Compile, fds: tuple[int, ...]
) -> tuple[Compiled, str]:
    worker = WorkerChannel(leases.compiler, limits, patience)
    try:
        worker.tell(question, fds)
        compiled = worker.hear(Compiled, "compile", limits.compile_timeout_s, MAX_FRAME_BYTES)
        return compiled, worker.output_tail()
    finally:
        worker.end()
        worker.close()


def _not_reached(missing: list[str], stopped: str | None) -> Found:
    why = f": the model's call ended there with {stopped}" if stopped else ""
    return Found(
        Stage.NOTHING,
        Fault.UNSUPPORTED,
        f"{', '.join(missing)} could not be compiled without running other kernels first{why}",
        phase="compile",
    )
