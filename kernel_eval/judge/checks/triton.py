"""The check of a Triton candidate: its source, its trials, the proof without it, and the build for the target."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import Assemble, Assembled, BuildNative, Compile
from weir.kernel_eval.ipc.tensor_arena import Arena
from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected, UnsupportedClaim
from weir.kernel_eval.judge.checks import compilation, proof, unsupported
from weir.kernel_eval.judge.checks.assembly import entry_of, machine_code, usage_report
from weir.kernel_eval.judge.checks.outcome import EVALUATION_ERRORS, CheckOutcome, EvaluationError, outcome_of
from weir.kernel_eval.judge.checks.target_build import PER_CONFIGURATION, TargetBuild
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.timing.roofline import Speed
from weir.kernel_eval.toolchain.ptxas_report import parse_usage

# Faults that the compiler may explain better: the interpreter runs kernels that no GPU would.
_EXPLAINED = frozenset(
    {
        *(Fault.RUNTIME_ERROR, Fault.OUTPUT_MISMATCH, Fault.NON_FINITE),
        *(Fault.SHAPE_MISMATCH, Fault.DTYPE_MISMATCH, Fault.MEMORY_FAULT, Fault.SEGFAULT),
    }
)
_MAX_ATTEMPTS = 16  # with other configurations of autotuned kernels


class TritonCheck:
    """One candidate."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._deadline = Deadline(job.limits.candidate_timeout_s)

    def run(self, leases: Leases, reference: Reference) -> CheckOutcome:
        """As in `Check`. Autotuned configurations that the target refuses are skipped, one by one."""
        try:
            tree = source_policy.checked(self._job.candidate_src, frozenset(self._job.relaxed_rules))
        except FaultDetected as error:
            return outcome_of(error)
        skipped_configs: dict[str, int] = {}
        details: dict[str, Any] = {}
        previous_trace: Trace | None = None
        for _ in range(_MAX_ATTEMPTS):
            trials = Trials(self._job, reference, skipped_configs, self._deadline)
            attempt = _Attempt(self._job, tree, leases, trials)
            ended_by = attempt.run()
            details |= attempt.details
            kernel = _refused_configuration(tree, ended_by)
            if kernel is None or trials.first == previous_trace:
                ended_by = attempt.explain(ended_by)
                break
            skipped_configs[kernel] = skipped_configs.get(kernel, 0) + 1
            previous_trace = trials.first
        return outcome_of(ended_by, trials=trials.num_answered, speed=attempt.speed, details=details)


class _Attempt:
    """One worker's trials of a candidate, with the proof and the build that belong to them."""

    def __init__(self, job: Job, tree: ast.Module, leases: Leases, trials: Trials) -> None:
        self._job = job
        self._limits = job.limits
        self._relaxed = frozenset(job.relaxed_rules)
        self._on_gpu = job.limits.gpu is not None
        self._tree = tree
        self._leases = leases
        self._trials = trials
        self._kernels = ""  # source of the launched kernels; empty if the task needs no proof
        self._build: TargetBuild | None = None
        self._assembled: list[dict[str, Any]] = []
        self.speed: Speed | None = None
        self.details: dict[str, Any] = {}

    def run(self) -> EvaluationError | None:
        """Run everything. Returns the error that ended it, None for a correct candidate."""
        try:
            self._judge()
        except EVALUATION_ERRORS as error:
            return error
        return None

    def _judge(self) -> None:
        worker, trials = self._leases.worker, self._trials
        try:
            trials.run(worker, functools.partial(machine_code, self._leases.program, self._limits), self._start_build)
            if self._kernels:
                kernels = proof.Kernels(self._kernels)
                self.speed = proof.prove(self._job, trials, worker, kernels, self._assemble)
            self.details["compile"] = self._compile_report()
        finally:
            self.details |= trials.details
            trials.close()
            if self._build is not None:
                self._build.close()

    def explain(self, error: EvaluationError | None) -> EvaluationError | None:
        """A better reason for a failure, if the compiler or a replay gives one, else the error itself."""
        if self._on_gpu or not isinstance(error, FaultDetected):
            return error  # on a GPU the kernels were compiled for this device
        is_claim = isinstance(error, UnsupportedClaim)
        try:
            if is_claim or error.fault in _EXPLAINED or error.details.get("rule") == "kernel_is_not_triton":
                with self._compile_request() as (request, fds):
                    compilation.explain(self._leases, self._limits, self._trials.deadline, request, fds)
            if isinstance(error, UnsupportedClaim) and self._trials.model is not None:
                unsupported.confirm(self._job, self._tree, self._trials, error, self._leases)
        except EVALUATION_ERRORS as reason:
            return reason
        return error

    def _start_build(self, first: Trace) -> None:
        """Compile for the target while the other trials run. Raises `FaultDetected` if a kernel is not Triton."""
        if proof.is_needed(first, self._relaxed):
            self._kernels = proof.kernels_of(self._tree, first)
            if not self._on_gpu:
                self._build = TargetBuild(self._leases, self._limits, self._trials.deadline, self._kernels, first)

    def _compile_report(self) -> dict[str, Any]:
        """The kernels compiled for the proof; without a proof, those that the candidate's own process compiled."""
        if self._on_gpu:
            return {"target": self._limits.target, "kernels": self._assembled}
        if self._build is not None:
            return self._build.finish()
        with self._compile_request() as (request, fds):
            launched = frozenset(self._trials.launched)
            return compilation.report(self._leases, self._limits, self._trials.deadline, request, fds, launched)

    def _assemble(self, message: Assemble | BuildNative) -> Assembled:
        """Assemble for the process of the proof; the resources of its kernels are reported."""
        assembled = machine_code(self._leases.program, self._limits, message)
        usage = parse_usage(assembled.printed)
        if isinstance(message, Assemble) and assembled.code is not None and usage is not None:
            self._assembled.append(usage_report(entry_of(message.assembly), usage))
        return assembled

    @contextlib.contextmanager
    def _compile_request(self) -> Iterator[tuple[Compile, tuple[int, ...]]]:
        """A request to a compile worker, with inputs that no trial has."""
        job, reference, guard_bytes = self._job, self._trials.reference, self._limits.guard_bytes
        with contextlib.ExitStack() as arenas:
            init_arguments = reference.init_arguments(derive_seed(job.secret, "init"))
            init = arenas.enter_context(contextlib.closing(Arena(init_arguments, [], guard_bytes)))
            inputs = reference.inputs(derive_seed(job.secret, "inputs", "compile"))
            call = arenas.enter_context(contextlib.closing(Arena(inputs, [], guard_bytes)))
            seed = derive_seed(job.secret, "weights")
            request = Compile(job.candidate_src, self._limits.target, init.spec, call.spec, seed)
            yield request, (init.fd, call.fd)


def _refused_configuration(tree: ast.Module, error: EvaluationError | None) -> str | None:
    """The autotuned kernel whose chosen configuration the target refuses."""
    if not isinstance(error, FaultDetected) or error.fault not in PER_CONFIGURATION:
        return None
    kernel = str(error.details.get("kernel", "")).rpartition(":")[0]
    return kernel if kernel and source_policy.mentions(tree, "autotune") else None
