"""The check of CUDA C++ and HIP on a machine without a GPU: whether it compiles, and the resources that it needs.

Whether it computes the right answer cannot be known, and is not guessed: the best fault that a candidate can get is
`not_run` if the server rewards that, else `unsupported`, which a round leaves out. Host code (bindings, launch
configurations, dynamic shared memory) is not examined.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from weir.kernel_eval.ipc.forkserver import COLLECTOR, Leases
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import Collect, Collected, CompileNative
from weir.kernel_eval.ipc.tensor_arena import Arena
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks import native_report
from weir.kernel_eval.judge.checks.native_build import check_number, compile_files
from weir.kernel_eval.judge.checks.outcome import EVALUATION_ERRORS, CheckOutcome, outcome_of
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.toolchain import native_compilers
from weir.kernel_eval.toolchain.native_compilers import Toolchain
from weir.kernel_eval.toolchain.native_source import NativeSource

TRITON_ONLY_RULES = frozenset({"no_kernel_defined", "empty_kernel"})  # their checks look for Triton kernels


class NativeCompileCheck:
    """One candidate."""

    def __init__(self, job: Job, language: native_compilers.Language) -> None:
        self._job = job
        self._limits = job.limits
        self._language = language

    def run(self, leases: Leases, reference: Reference) -> CheckOutcome:
        """As in `Check`. The outcome always has a fault, since nothing was run."""
        try:
            compiled = self._compile_candidate(leases, reference)
        except EVALUATION_ERRORS as error:
            return outcome_of(error)
        fault = Fault.NOT_RUN if self._job.reward_compiled else Fault.UNSUPPORTED
        message = f"it compiles for {self._limits.target}; whether it is right is unknown, as there is no device here"
        not_run = FaultDetected(Stage.LOADED, fault, message, phase="call")
        return outcome_of(not_run, details={"compile": compiled, "correctness": "unknown"})

    def _compile_candidate(self, leases: Leases, reference: Reference) -> dict[str, Any]:
        """The report on all kernels. Raises `FaultDetected` and the errors of the reference."""
        toolchain = native_compilers.find(self._language)
        if isinstance(toolchain, str):
            raise FaultDetected(Stage.NOTHING, Fault.UNSUPPORTED, f"backend {self._language}: {toolchain}")
        source_policy.checked(self._job.candidate_src, frozenset(self._job.relaxed_rules) | TRITON_ONLY_RULES)
        sources = self._collect(leases, reference)
        if "no_kernel_defined" not in self._job.relaxed_rules and not any(s.defines_kernel for s in sources):
            raise rule_broken("no_kernel_defined", f"no __global__ function was given to a {self._language} compiler")
        return self._compile_all(leases, toolchain, sources)

    def _collect(self, leases: Leases, reference: Reference) -> tuple[NativeSource, ...]:
        """The sources that the candidate gives to compilers, as a collector reports them."""
        job, limits = self._job, self._limits
        with contextlib.ExitStack() as arenas:
            init_arguments = reference.init_arguments(derive_seed(job.secret, "init"))
            init = arenas.enter_context(contextlib.closing(Arena(init_arguments, [], limits.guard_bytes)))
            inputs = reference.inputs(derive_seed(job.secret, "inputs", "compile"))
            call = arenas.enter_context(contextlib.closing(Arena(inputs, [], limits.guard_bytes)))
            weight_seed = derive_seed(job.secret, "weights")
            request = Collect(job.candidate_src, limits.target, init.spec, call.spec, weight_seed)
            collector = WorkerChannel(leases.compiler, limits, Deadline(limits.candidate_timeout_s), COLLECTOR)
            try:
                collector.send(request, (init.fd, call.fd))
                timeout_s = limits.load_timeout_s + limits.init_timeout_s + limits.call_timeout_s
                return collector.receive(Collected, "load", timeout_s).sources
            finally:
                collector.end()
                collector.close()

    def _compile_all(self, leases: Leases, toolchain: Toolchain, sources: tuple[NativeSource, ...]) -> dict[str, Any]:
        check_number(len(sources))
        started = time.monotonic()
        kernels: list[dict[str, Any]] = []
        for source in dict.fromkeys(sources):
            left_s = self._limits.native_timeout_s - (time.monotonic() - started)
            kernels += self._compile(leases, toolchain, source, left_s)
        return {
            "target": self._limits.target,
            "kernels": kernels,
            "ignored_flags": sorted({flag for source in sources for flag in source.ignored_flags}),
            "seconds": round(time.monotonic() - started, 4),
        }

    def _compile(
        self, leases: Leases, toolchain: Toolchain, source: NativeSource, left_s: float
    ) -> list[dict[str, Any]]:
        command = toolchain.command(source, self._limits.target)
        request = CompileNative({source.file_name: source.complete_text}, command)
        compiled = compile_files(leases.program, self._limits, source.name, request, left_s)
        return native_report.kernels_in(compiled.printed)
