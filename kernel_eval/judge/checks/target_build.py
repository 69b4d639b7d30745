"""Compiles the kernels of a record for the target, in a process that runs no code of the candidate.

The build runs while the trials run. Invariant: a candidate is correct only if the IR that gave its answers was compiled
and assembled by NVIDIA's assembler. Two readers read its text, the player's and the compiler's, and what they read
could differ: so the text has to be what the compiler itself prints of it. The builder receives no message from the
candidate's process.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from weir.kernel_eval.ipc.forkserver import BUILDER, Leases
from weir.kernel_eval.ipc.framing import MAX_FRAME_BYTES
from weir.kernel_eval.ipc.messages import Build, BuiltKernel, Compiled, KernelIr
from weir.kernel_eval.judge.channel.contained_program import RunningProgram
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks.assembly import describe, refused_for, start_assembler
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault

# faults of one configuration of an autotuned kernel, which another configuration may not have
PER_CONFIGURATION = frozenset({Fault.SHARED_MEM_EXCEEDED, Fault.LAUNCH_FAILURE, Fault.TRITON_COMPILE_ERROR})


class TargetBuild:
    """The build of some kernels, started by the constructor. The owner must call `close`.

    `assembles`: it may start an assembler before `finish`, so that no other build of the evaluation may.
    """

    def __init__(
        self, leases: Leases, limits: Limits, deadline: Deadline, irs: tuple[KernelIr, ...], *, assembles: bool
    ) -> None:
        self._leases = leases
        self._limits = limits
        self._irs = irs
        self._assembles = assembles
        self._failed: FaultDetected | None = None
        self._assembler: RunningProgram | None = None
        self._started = time.monotonic()
        self._compiled: Compiled | None = None
        self._builder = WorkerChannel(leases.compiler, limits, deadline, BUILDER)
        self._builder.send(Build(irs, limits.target), ())

    def advance(self) -> None:
        """Start the assembler if the compiler is done; does not wait. What failed is raised by those that wait."""
        if self._compiled is None and self._failed is None and self._builder.has_reply:
            try:
                self._receive()
            except FaultDetected as error:
                self._failed = error

    def leave(self) -> None:
        """Do not wait for the end of the builder, since no other build follows. Raises `ZygoteLost`."""
        self._builder.leave()

    def make_room(self) -> None:
        """Wait for the end of the build, so that another can start. Raises `FaultDetected`."""
        self._wait()
        self._builder.end()

    def _wait(self) -> None:
        """Wait for the build. Raises `FaultDetected` if it takes too long or fails."""
        if self._failed is not None:
            raise self._failed
        if self._compiled is None:
            self._receive()

    def _receive(self) -> None:
        left_s = self._started + self._limits.compile_timeout_s - time.monotonic()
        compiled = self._builder.receive(Compiled, "compile", max(left_s, 0.001), MAX_FRAME_BYTES)
        self._compiled = compiled
        self._builder.begin_end()
        if self._assembles and compiled.built and not compiled.refused:
            self._assembler = start_assembler(self._leases.program, self._limits, compiled.built[0])

    def finish(self, relaxed: frozenset[str]) -> dict[str, Any]:
        """Wait for the build; returns its report. Raises `FaultDetected` if a kernel cannot be built for the target."""
        self._wait()
        assert self._compiled is not None
        compiled = self._compiled
        for refused in compiled.refused:
            self._builder.end()  # so that its output is complete
            raise refused_for(refused, self._limits.target, self._builder.output_tail())
        as_printed = [built.ir for built in compiled.built] == [ir.text for ir in self._irs]
        if not as_printed and "ir_differs" not in relaxed:
            raise rule_broken(
                "ir_differs", "the text that was played is not as the compiler prints what it reads there"
            )
        kernels = [self._described(built) for built in compiled.built]
        seconds = round(time.monotonic() - self._started, 4)
        return {"target": self._limits.target, "kernels": kernels, "seconds": seconds}

    def _described(self, built: BuiltKernel) -> dict[str, Any]:
        started, self._assembler = self._assembler, None
        with contextlib.closing(started) if started else contextlib.nullcontext():
            return describe(self._leases.program, self._limits, built, started)

    def close(self) -> None:
        """End the builder and its assembler, and close their descriptors."""
        try:
            if self._assembler is not None:
                self._assembler.close()
        finally:
            self._builder.end_and_close()
