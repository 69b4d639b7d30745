"""A judge's hold on the compilation of one candidate, which runs beside its trials.

A compile worker (untrusted) turns the candidate's launches into PTX, an assembler (contained, no code of the
candidate's) turns that into figures. Invariant: the outcome can only lower a verdict. A kernel that was launched in a
trial must have been built; a worker that stays silent, lies or dies earns nothing by it, since being correct is
decided by the trials alone.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from weir.kernel_eval.contained_program import run_program
from weir.kernel_eval.forkserver import ASSEMBLER
from weir.kernel_eval.frames import MAX_FRAME_BYTES
from weir.kernel_eval.judgement import Found
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.ptxas_report import Usage, parse_usage
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.worker_channel import WorkerChannel
from weir.kernel_eval.worker_messages import Assemble, BuiltKernel, Compile, Compiled, RefusedKernel

_FAULTS = {
    "compile": Fault.TRITON_COMPILE_ERROR,
    "arch": Fault.UNSUPPORTED_ARCH,
    "shared_memory": Fault.SHARED_MEM_EXCEEDED,
    "launch": Fault.LAUNCH_FAILURE,
}


class Compilation:
    """One candidate, from `start` to `finish`. `close` must be called."""

    def __init__(self, worker_lease: socket.socket, assembler_lease: socket.socket, limits: Limits) -> None:
        self._limits = limits
        self._assembler_lease = assembler_lease
        self._started = time.monotonic()
        self._worker = WorkerChannel(worker_lease, limits)

    def start(self, message: Compile, fds: tuple[int, ...]) -> None:
        """Set it going."""
        self._worker.tell(message, fds)

    def finish(self, launched: frozenset[str]) -> dict[str, Any]:
        """Wait for the end; what to report. Raises `Found` where a launched kernel is not built for the target."""
        compiled = self._hear()
        for refused in compiled.refused:
            if refused.kernel in launched:
                raise _refused(refused, self._limits.target, self._worker.output_tail())
        missing = sorted(launched - {built.kernel for built in compiled.built})
        if missing:
            raise _not_reached(missing, compiled.stopped)
        kernels = [self._describe(built) for built in compiled.built]
        return {
            "target": self._limits.target,
            "kernels": kernels,
            "seconds": round(time.monotonic() - self._started, 4),
        }

    def explain(self) -> None:
        """For a candidate that failed its trials: raises `Found` where the compiler already refuses a kernel of it."""
        for refused in self._hear().refused:
            raise _refused(refused, self._limits.target, self._worker.output_tail())

    def _hear(self) -> Compiled:
        left_s = self._started + self._limits.compile_timeout_s - time.monotonic()
        compiled = self._worker.hear(Compiled, "compile", max(left_s, 0.001), MAX_FRAME_BYTES)
        self._worker.end()
        return compiled

    def close(self) -> None:
        """Give back descriptors; whoever still runs is ended with its lease."""
        self._worker.close()
        self._assembler_lease.close()

    def _describe(self, built: BuiltKernel) -> dict[str, Any]:
        usage = self._assemble(built)
        return {
            "kernel": built.kernel,
            "shared_bytes": built.shared_bytes + usage.static_shared_bytes,
            "num_warps": built.num_warps,
            "num_stages": built.num_stages,
            "registers": usage.registers,
            "stack_bytes": usage.stack_bytes,
            "spill_bytes": usage.spill_store_bytes + usage.spill_load_bytes,
        }

    def _assemble(self, built: BuiltKernel) -> Usage:
        message = Assemble(built.assembly, self._limits.target)
        limits = self._limits
        printed, exit_code = run_program(self._assembler_lease, limits, ASSEMBLER, message, limits.compile_timeout_s)
        usage = parse_usage(printed) if exit_code == 0 else None
        if usage is None:
            text = f"ptxas ended with {exit_code} for {built.kernel}: {printed[-2000:]}"
            raise Found(Stage.LOADED, Fault.TRITON_COMPILE_ERROR, text, phase="compile")
        return usage


def _refused(refused: RefusedKernel, target: str, printed: str) -> Found:
    reason = refused.message.strip().rpartition("\n")[2]  # Triton quotes the source first
    message = f"{reason} ({refused.kernel} for {target})\n{refused.message}"
    details = {"compiler_output": printed} if printed else {}
    return Found(Stage.LOADED, _FAULTS[refused.reason], message, phase="compile", **details)


def _not_reached(missing: list[str], stopped: str | None) -> Found:
    why = f": the model's call ended there with {stopped}" if stopped else ""
    return Found(
        Stage.NOTHING,
        Fault.UNSUPPORTED,
        f"{', '.join(missing)} could not be compiled without running other kernels first{why}",
        phase="compile",
    )
