"""Compiles the kernels of a record for the target, in a process that runs no code of the candidate.

The build runs while the trials run. Invariant: a candidate is correct only if the IR that gave its answers was compiled
and assembled by NVIDIA's assembler. Two readers read its text, the player's and the compiler's, and what they read
could differ: so the text has to be what the compiler itself prints of it. The builder receives no message from the
candidate's process.
"""

from __future__ import annotations

import time
from typing import Any

from weir.kernel_eval.ipc.forkserver import BUILDER, Leases
from weir.kernel_eval.ipc.framing import MAX_FRAME_BYTES
from weir.kernel_eval.ipc.messages import Build, Compiled, KernelIr
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import rule_broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks.assembly import describe, refused_for
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault

# faults of one configuration of an autotuned kernel, which another configuration may not have
PER_CONFIGURATION = frozenset({Fault.SHARED_MEM_EXCEEDED, Fault.LAUNCH_FAILURE, Fault.TRITON_COMPILE_ERROR})


class TargetBuild:
    """The build of some kernels, started by the constructor. The owner must call `close`."""

    def __init__(self, leases: Leases, limits: Limits, deadline: Deadline, irs: tuple[KernelIr, ...]) -> None:
        self._leases = leases
        self._limits = limits
        self._irs = irs
        self._started = time.monotonic()
        self._compiled: Compiled | None = None
        self._builder = WorkerChannel(leases.compiler, limits, deadline, BUILDER)
        self._builder.send(Build(irs, limits.target), ())

    def wait(self) -> None:
        """Wait for the build, so that another can start. Raises `FaultDetected` if it takes too long or fails."""
        if self._compiled is None:
            left_s = self._started + self._limits.compile_timeout_s - time.monotonic()
            self._compiled = self._builder.receive(Compiled, "compile", max(left_s, 0.001), MAX_FRAME_BYTES)
            self._builder.end()

    def finish(self, relaxed: frozenset[str]) -> dict[str, Any]:
        """Wait for the build; returns its report. Raises `FaultDetected` if a kernel cannot be built for the target."""
        self.wait()
        assert self._compiled is not None
        compiled = self._compiled
        for refused in compiled.refused:
            raise refused_for(refused, self._limits.target, self._builder.output_tail())
        as_printed = [built.ir for built in compiled.built] == [ir.text for ir in self._irs]
        if not as_printed and "ir_differs" not in relaxed:
            raise rule_broken(
                "ir_differs", "the text that was played is not as the compiler prints what it reads there"
            )
        return {
            "target": self._limits.target,
            "kernels": [describe(self._leases.program, self._limits, built) for built in compiled.built],
            "seconds": round(time.monotonic() - self._started, 4),
        }

    def close(self) -> None:
        """End the builder, and close its descriptors."""
        try:
            self._builder.end()
        finally:
            self._builder.close()
