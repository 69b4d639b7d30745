"""The check of CUDA C++ on a GPU: compiled outside of the worker, run in trials, proven without the candidate, timed.

The proof and the timing run the launches of machine code that the judge had built, in a process that holds nothing of
the candidate but that code. Host code, bindings and Python are trusted only for the list of launches that they made.
"""

from __future__ import annotations

from typing import Any

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import Assemble, Assembled, BuildNative, BuiltNative
from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.checks import proof
from weir.kernel_eval.judge.checks.assembly import machine_code
from weir.kernel_eval.judge.checks.native_build import NativeBuilder
from weir.kernel_eval.judge.checks.native_cpu import TRITON_ONLY_RULES
from weir.kernel_eval.judge.checks.outcome import EVALUATION_ERRORS, CheckOutcome, EvaluationError, outcome_of
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.timing.roofline import Speed
from weir.kernel_eval.toolchain import native_compilers
from weir.kernel_eval.toolchain.native_compilers import Toolchain


class NativeGpuCheck:
    """One candidate."""

    def __init__(self, job: Job, language: native_compilers.Language) -> None:
        self._job = job
        self._limits = job.limits
        self._language = language
        self._relaxed = frozenset(job.relaxed_rules)

    def run(self, leases: Leases, reference: Reference) -> CheckOutcome:
        """As in `Check`."""
        try:
            toolchain = self._toolchain()
            source_policy.checked(self._job.candidate_src, self._relaxed | TRITON_ONLY_RULES)
        except FaultDetected as error:
            return outcome_of(error)
        trials = Trials(self._job, reference, Deadline(self._limits.candidate_timeout_s))
        builder = NativeBuilder(leases.program, self._limits, toolchain)
        ended_by: EvaluationError | None = None
        speed: Speed | None = None
        try:
            speed = self._judge(leases, trials, builder)
        except EVALUATION_ERRORS as error:
            ended_by = error
        finally:
            trials.close()
        details: dict[str, Any] = trials.details | {"compile": builder.report()}
        return outcome_of(ended_by, trials=trials.num_answered, speed=speed, details=details)

    def _toolchain(self) -> Toolchain:
        """Raises `FaultDetected` if this machine cannot compile or run the language."""
        toolchain = native_compilers.find(self._language)
        missing = toolchain if isinstance(toolchain, str) else native_compilers.runs_here(toolchain)
        if isinstance(toolchain, str) or missing is not None:
            raise FaultDetected(Stage.NOTHING, Fault.UNSUPPORTED, f"backend {self._language}: {missing}")
        return toolchain

    def _judge(self, leases: Leases, trials: Trials, builder: NativeBuilder) -> Speed | None:
        def handle_request(message: Assemble | BuildNative) -> Assembled | BuiltNative:
            if isinstance(message, BuildNative):
                return builder.build(message)
            return machine_code(leases.program, self._limits, message)

        trials.run(leases.worker, handle_request, self._check_first)
        if "no_kernel_defined" not in self._relaxed and not builder.defines_kernel:
            raise rule_broken("no_kernel_defined", f"no __global__ function was given to a {self._language} compiler")
        if trials.first is None or not proof.is_needed(trials.first, self._relaxed):
            return None
        return proof.prove(self._job, trials, leases.worker, builder.codes)

    def _check_first(self, first: Trace) -> None:
        """Raises `FaultDetected` if kernels of Triton have a part in the answer: their record has no IR."""
        if first.launches and proof.is_needed(first, self._relaxed):
            message = f"{first.launches[0].name} is a kernel of Triton in a candidate for {self._language}: send "
            message += "kernels of one language, with its backend"
            raise FaultDetected(Stage.LOADED, Fault.UNSUPPORTED, message, phase="call")
