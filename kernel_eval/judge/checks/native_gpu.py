"""The judgement of CUDA C++ on a GPU: built elsewhere, run in trials like any candidate, proven without it, timed.

What is proven and timed are the launches of machine code that the judge had built, in a process that has nothing of the
candidate but that code: host code, bindings and Python are only believed for which launches they made.
"""

from __future__ import annotations

import ast
from typing import Any

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.messages import Assemble, Assembled, BuildNative, BuiltNative
from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.channel.deadline import Patience
from weir.kernel_eval.judge.channel.job import Found, Job, broken
from weir.kernel_eval.judge.checks import proof
from weir.kernel_eval.judge.checks.assembly import machine_code
from weir.kernel_eval.judge.checks.native_build import NativeBuilder
from weir.kernel_eval.judge.checks.native_cpu import OF_TRITON
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.toolchain import native_compilers


class NativeRun:
    """One candidate."""

    def __init__(self, job: Job, language: native_compilers.Language) -> None:
        self._job = job
        self._limits = job.limits
        self._language = language
        self._relaxed = frozenset(job.relaxed_rules)
        self._source = ""  # of Triton's kernels that it launches too
        self.trials = 0
        self.speedup: float | None = None
        self.timed = False
        self.details: dict[str, Any] = {}

    def run(self, leases: Leases, reference: Reference) -> None:
        """Return if the candidate is correct. Raises `Found` and the errors of the reference."""
        toolchain = native_compilers.find(self._language)
        missing = toolchain if isinstance(toolchain, str) else native_compilers.runs_here(toolchain)
        if isinstance(toolchain, str) or missing is not None:
            raise Found(Stage.NOTHING, Fault.UNSUPPORTED, f"backend {self._language}: {missing}")
        tree = source_policy.checked(self._job.candidate_src, self._relaxed | OF_TRITON)
        self._judge(tree, leases, reference, NativeBuilder(leases.program, self._limits, toolchain))

    def close(self) -> None:
        """Nothing is left when `run` has ended."""

    def _judge(self, tree: ast.Module, leases: Leases, reference: Reference, builder: NativeBuilder) -> None:
        trials = Trials(self._job, reference, {}, Patience(self._limits.patience_s))

        def serve(message: Assemble | BuildNative) -> Assembled | BuiltNative:
            if isinstance(message, BuildNative):
                return builder.build(message)
            return machine_code(leases.program, self._limits, message)

        def at_first(first: Trace) -> None:
            if first.launches and proof.is_asked_for(first, self._relaxed):
                self._source = proof.kernels_of(tree, first)

        try:
            trials.run(leases.worker, serve, at_first)
            self._check_defined(builder)
            if trials.first is not None and proof.is_asked_for(trials.first, self._relaxed):
                kernels = proof.Kernels(self._source, tuple(builder.codes))
                found = proof.prove(self._job, trials, leases.worker, kernels, serve)
                if found is not None:
                    self.speedup, self.timed, self.details["timing"] = found.speedup, True, found.report()
        finally:
            self.trials = trials.num_answered
            self.details |= trials.details | {"compile": builder.report()}
            trials.close()

    def _check_defined(self, builder: NativeBuilder) -> None:
        if "no_kernel_defined" not in self._relaxed and not builder.defines_kernel:
            raise broken("no_kernel_defined", f"no __global__ function was given to a {self._language} compiler")
