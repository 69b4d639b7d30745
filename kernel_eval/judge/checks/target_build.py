"""A judge's hold on a build: what gave the answer, compiled for the target by a process that no candidate runs in.

It runs beside the trials that follow the first one. Invariant: every launch of the trace that the proof runs has been
compiled from the checked source and assembled by NVIDIA's assembler, or the candidate is not correct; nothing that a
candidate's process says is asked for or heard.
"""

from __future__ import annotations

import time
from typing import Any

from weir.kernel_eval.ipc.forkserver import BUILDER, Leases
from weir.kernel_eval.ipc.framing import MAX_FRAME_BYTES
from weir.kernel_eval.ipc.messages import Build, Compiled
from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.channel.deadline import Patience
from weir.kernel_eval.judge.channel.job import Found
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks.assembly import describe, refused_for
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage

# what a device refuses of one configuration of an autotuned kernel, and may take of another
PER_CONFIGURATION = frozenset({Fault.SHARED_MEM_EXCEEDED, Fault.LAUNCH_FAILURE, Fault.TRITON_COMPILE_ERROR})


class Building:
    """One trace, from its start to `finish`. `close` must be called."""

    def __init__(self, leases: Leases, limits: Limits, patience: Patience, kernels: str, trace: Trace) -> None:
        self._leases = leases
        self._limits = limits
        self._started = time.monotonic()
        self._builder = WorkerChannel(leases.compiler, limits, patience, BUILDER)
        self._builder.tell(Build(kernels, tuple(trace.launches), limits.target), ())

    def finish(self) -> dict[str, Any]:
        """Wait for the end; what to report. Raises `Found` where a launch cannot be built for the target."""
        left_s = self._started + self._limits.compile_timeout_s - time.monotonic()
        compiled = self._builder.hear(Compiled, "compile", max(left_s, 0.001), MAX_FRAME_BYTES)
        self._builder.end()
        for refused in compiled.refused:
            raise refused_for(refused, self._limits.target, self._builder.output_tail())
        if compiled.stopped is not None:
            message = f"the launches of the first call do not build without the candidate: {compiled.stopped}"
            raise Found(Stage.LOADED, Fault.TRITON_COMPILE_ERROR, message, phase="compile")
        return {
            "target": self._limits.target,
            "kernels": [describe(self._leases.program, self._limits, built) for built in compiled.built],
            "seconds": round(time.monotonic() - self._started, 4),
        }

    def close(self) -> None:
        """End the builder, and give back descriptors."""
        try:
            self._builder.end()
        finally:
            self._builder.close()
