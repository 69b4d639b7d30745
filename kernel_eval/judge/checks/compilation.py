"""Compiles a candidate by running it, if it has failed already or if its task needs no proof.

A compile worker (untrusted) runs the model with each launch replaced by a compilation. Invariant: its messages serve
only to explain why a candidate failed, except if a task relaxes the proof: then every kernel that was launched in a
trial must be among the kernels that it sent, as text that the assembler accepts. Candidates that need the proof are
compiled from their trace instead (`target_build.py`).
"""

from __future__ import annotations

import time
from typing import Any

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.framing import MAX_FRAME_BYTES
from weir.kernel_eval.ipc.messages import Compile, Compiled
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks.assembly import describe, refused_for
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage


def explain(leases: Leases, limits: Limits, deadline: Deadline, request: Compile, fds: tuple[int, ...]) -> None:
    """Compile a candidate that failed. Raises `FaultDetected` if the compiler refuses one of its kernels."""
    compiled, printed = _compile(leases, limits, deadline, request, fds)
    for refused in compiled.refused:
        raise refused_for(refused, limits.target, printed)


def report(
    leases: Leases,
    limits: Limits,
    deadline: Deadline,
    request: Compile,
    fds: tuple[int, ...],
    launched: frozenset[str],
) -> dict[str, Any]:
    """The compile report of a candidate that is right and needs no proof.

    Raises `FaultDetected` if a kernel in `launched` was refused or is missing.
    """
    started = time.monotonic()
    compiled, printed = _compile(leases, limits, deadline, request, fds)
    for refused in compiled.refused:
        if refused.kernel in launched:
            raise refused_for(refused, limits.target, printed)
    missing = sorted(launched - {built.kernel for built in compiled.built})
    if missing:
        raise _not_reached(missing, compiled.stopped)
    kernels = [describe(leases.program, limits, built) for built in compiled.built]
    return {"target": limits.target, "kernels": kernels, "seconds": round(time.monotonic() - started, 4)}


def _compile(
    leases: Leases, limits: Limits, deadline: Deadline, request: Compile, fds: tuple[int, ...]
) -> tuple[Compiled, str]:
    worker = WorkerChannel(leases.compiler, limits, deadline)
    try:
        worker.send(request, fds)
        compiled = worker.receive(Compiled, "compile", limits.compile_timeout_s, MAX_FRAME_BYTES)
        return compiled, worker.output_tail()
    finally:
        worker.end()
        worker.close()


def _not_reached(missing: list[str], stopped: str | None) -> FaultDetected:
    why = f": the model's call ended there with {stopped}" if stopped else ""
    return FaultDetected(
        Stage.NOTHING,
        Fault.UNSUPPORTED,
        f"{', '.join(missing)} could not be compiled without running other kernels first{why}",
        phase="compile",
    )
