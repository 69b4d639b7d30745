"""The check of a Triton candidate on a GPU: its source, its trials, the proof without it, and its speed."""

from __future__ import annotations

import ast
import functools
from typing import Any

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import Assemble, Assembled, BuildNative
from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks import proof
from weir.kernel_eval.judge.checks.assembly import entry_of, machine_code, usage_report
from weir.kernel_eval.judge.checks.outcome import EVALUATION_ERRORS, CheckOutcome, EvaluationError, outcome_of
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.timing.roofline import Speed
from weir.kernel_eval.toolchain.ptxas_report import parse_usage


class TritonGpuCheck:
    """One candidate."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._limits = job.limits
        self._relaxed = frozenset(job.relaxed_rules)
        self._kernels = ""  # source of the launched kernels; empty if the task needs no proof
        self._assembled: list[dict[str, Any]] = []

    def run(self, leases: Leases, reference: Reference) -> CheckOutcome:
        """As in `Check`. The kernels are compiled by the candidate's process, for this device."""
        try:
            tree = source_policy.checked(self._job.candidate_src, self._relaxed)
        except FaultDetected as error:
            return outcome_of(error)
        trials = Trials(self._job, reference, {}, Deadline(self._limits.candidate_timeout_s))
        ended_by: EvaluationError | None = None
        speed: Speed | None = None
        try:
            speed = self._judge(tree, leases, trials)
        except EVALUATION_ERRORS as error:
            ended_by = error
        finally:
            trials.close()
        report = {"target": self._limits.target, "kernels": self._assembled}
        details = trials.details | ({} if ended_by else {"compile": report})
        return outcome_of(ended_by, trials=trials.num_answered, speed=speed, details=details)

    def _judge(self, tree: ast.Module, leases: Leases, trials: Trials) -> Speed | None:
        def after_first(first: Trace) -> None:
            if proof.is_needed(first, self._relaxed):
                self._kernels = proof.kernels_of(tree, first)

        trials.run(leases.worker, functools.partial(machine_code, leases.program, self._limits), after_first)
        if not self._kernels:
            return None
        kernels = proof.Kernels(self._kernels)
        speed = proof.prove(self._job, trials, leases.worker, kernels, functools.partial(self._assemble, leases))
        if self._job.cross_checks:
            trials.details["cross_check"] = proof.second_opinion(self._job, leases, trials, kernels)
        return speed

    def _assemble(self, leases: Leases, message: Assemble | BuildNative) -> Assembled:
        """Assemble for the process of the proof; the resources of its kernels are reported."""
        assembled = machine_code(leases.program, self._limits, message)
        usage = parse_usage(assembled.printed)
        if isinstance(message, Assemble) and assembled.code is not None and usage is not None:
            self._assembled.append(usage_report(entry_of(message.assembly), usage))
        return assembled
