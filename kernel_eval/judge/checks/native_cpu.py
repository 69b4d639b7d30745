"""The judgement of CUDA C++ and HIP where no device is: does it compile, and what does it need there?

Whether it computes the right thing cannot be known, and is not guessed: the best that a candidate can come to is
`not_run` where the server rewards that, and else `unsupported`, which a round leaves out. Host code (bindings, launch
configurations, dynamic shared memory) is not looked at.
"""

from __future__ import annotations

import time
from typing import Any

from weir.kernel_eval.ipc.forkserver import COLLECTOR, Leases
from weir.kernel_eval.ipc.messages import Collect, Collected, CompileNative
from weir.kernel_eval.ipc.tensor_arena import Arena
from weir.kernel_eval.judge.channel.deadline import Patience
from weir.kernel_eval.judge.channel.job import Found, Job, broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks import native_report
from weir.kernel_eval.judge.checks.native_build import check_number, compile_files
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.toolchain import native_compilers
from weir.kernel_eval.toolchain.native_compilers import Toolchain
from weir.kernel_eval.toolchain.native_source import NativeSource

OF_TRITON = frozenset({"no_kernel_defined", "empty_kernel"})  # what these look for is Triton's


class NativeCheck:
    """One candidate."""

    def __init__(self, job: Job, language: native_compilers.Language) -> None:
        self._job = job
        self._limits = job.limits
        self._language = language
        self._arenas: list[Arena] = []
        self.trials = 0
        self.speedup: float | None = None
        self.timed = False
        self.details: dict[str, Any] = {}

    def run(self, leases: Leases, reference: Reference) -> None:
        """Always raises `Found`, or the errors of the reference."""
        toolchain = native_compilers.find(self._language)
        if isinstance(toolchain, str):
            raise Found(Stage.NOTHING, Fault.UNSUPPORTED, f"backend {self._language}: {toolchain}")
        source_policy.checked(self._job.candidate_src, frozenset(self._job.relaxed_rules) | OF_TRITON)
        sources = self._collect(leases, reference)
        self._compile_all(leases, toolchain, sources)
        fault = Fault.NOT_RUN if self._job.reward_compiled else Fault.UNSUPPORTED
        message = f"it compiles for {self._limits.target}; whether it is right is unknown, as there is no device here"
        raise Found(Stage.LOADED, fault, message, phase="call")

    def close(self) -> None:
        """Give back shared memory."""
        for arena in self._arenas:
            arena.close()

    def _collect(self, leases: Leases, reference: Reference) -> tuple[NativeSource, ...]:
        secret = self._job.secret
        init = self._arena(reference.init_arguments(derive_seed(secret, "init")))
        call = self._arena(reference.inputs(derive_seed(secret, "inputs", "compile")))
        message = Collect(
            self._job.candidate_src, self._limits.target, init.spec, call.spec, derive_seed(secret, "weights")
        )
        collector = WorkerChannel(leases.compiler, self._limits, Patience(self._limits.patience_s), COLLECTOR)
        try:
            collector.tell(message, (init.fd, call.fd))
            timeout_s = self._limits.load_timeout_s + self._limits.init_timeout_s + self._limits.call_timeout_s
            sources = collector.hear(Collected, "load", timeout_s).sources
        finally:
            collector.end()
            collector.close()
        if "no_kernel_defined" not in self._job.relaxed_rules and not any(s.defines_kernel for s in sources):
            raise broken("no_kernel_defined", f"no __global__ function was given to a {self._language} compiler")
        return sources

    def _arena(self, arguments: list[Any]) -> Arena:
        self._arenas.append(Arena(arguments, [], self._limits.guard_bytes))
        return self._arenas[-1]

    def _compile_all(self, leases: Leases, toolchain: Toolchain, sources: tuple[NativeSource, ...]) -> None:
        check_number(len(sources))
        started = time.monotonic()
        kernels: list[dict[str, Any]] = []
        for source in dict.fromkeys(sources):
            left_s = self._limits.native_timeout_s - (time.monotonic() - started)
            kernels += self._compile(leases, toolchain, source, left_s)
        self.details["compile"] = {
            "target": self._limits.target,
            "kernels": kernels,
            "ignored_flags": sorted({flag for source in sources for flag in source.ignored_flags}),
            "seconds": round(time.monotonic() - started, 4),
        }
        self.details["correctness"] = "unknown"

    def _compile(
        self, leases: Leases, toolchain: Toolchain, source: NativeSource, left_s: float
    ) -> list[dict[str, Any]]:
        command = toolchain.command(source, self._limits.target)
        message = CompileNative({source.file_name: source.complete_text}, command)
        return native_report.kernels_in(
            compile_files(leases.program, self._limits, source.name, message, left_s).printed
        )
