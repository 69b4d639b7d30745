"""The judgement of a Triton candidate: its source, its trials, the proof without it, and the build for the target."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.messages import Assemble, Assembled, BuildNative, Compile
from weir.kernel_eval.ipc.tensor_arena import Arena
from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.channel.deadline import Patience
from weir.kernel_eval.judge.channel.job import Found, Job, Lacks
from weir.kernel_eval.judge.checks import compilation, proof, unsupported
from weir.kernel_eval.judge.checks.assembly import described, entry_of, machine_code
from weir.kernel_eval.judge.checks.target_build import PER_CONFIGURATION, Building
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.toolchain.ptxas_report import parse_usage

# what a candidate is told of the compiler's refusal instead of: the interpreter runs on where no GPU would
_EXPLAINED = frozenset(
    {
        *(Fault.RUNTIME_ERROR, Fault.OUTPUT_MISMATCH, Fault.NON_FINITE),
        *(Fault.SHAPE_MISMATCH, Fault.DTYPE_MISMATCH, Fault.MEMORY_FAULT, Fault.SEGFAULT),
    }
)
_MAX_ATTEMPTS = 16  # with other configurations of autotuned kernels


class TritonCheck:
    """One candidate. `close` must be called."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._limits = job.limits
        self._relaxed = frozenset(job.relaxed_rules)
        self._on_gpu = job.limits.gpu is not None
        self._patience = Patience(job.limits.patience_s)
        self._kernels = ""
        self._assembled: list[dict[str, Any]] = []
        self.speedup: float | None = None
        self.timed = False
        self._building: Building | None = None
        self.trials = 0
        self.details: dict[str, Any] = {}

    def run(self, leases: Leases, reference: Reference) -> None:
        """Return if the candidate is correct. Raises `Found` and the errors of the reference."""
        tree = source_policy.checked(self._job.candidate_src, self._relaxed)
        passed_over: dict[str, int] = {}
        before: Trace | None = None
        for _ in range(_MAX_ATTEMPTS):
            trials = Trials(self._job, reference, passed_over, self._patience)
            try:
                return self._judge(tree, leases, trials)
            except Found as found:
                kernel = _refused_configuration(tree, found)
                if kernel is None or trials.first == before:
                    self._explain(found, leases, reference)
                    if isinstance(found, Lacks) and not self._on_gpu and trials.model is not None:
                        unsupported.confirm(self._job, tree, trials, found, leases)
                    raise
                passed_over[kernel] = passed_over.get(kernel, 0) + 1
                before, last = trials.first, found
        raise last

    def close(self) -> None:
        """End what is still being built."""
        if self._building is not None:
            self._building.close()
            self._building = None

    def _judge(self, tree: ast.Module, leases: Leases, trials: Trials) -> None:
        try:
            assemble = functools.partial(machine_code, leases.program, self._limits)
            trials.run(leases.worker, assemble, functools.partial(self._start_building, tree, leases))
            if self._kernels:
                self._prove(trials, leases)
            self.details["compile"] = self._built(leases, trials)
        finally:
            self.trials = trials.num_answered
            self.details |= trials.details
            trials.close()
            self.close()

    def _start_building(self, tree: ast.Module, leases: Leases, first: Trace) -> None:
        """Beside the trials that follow. Raises `Found` where a kernel is not Triton."""
        if proof.is_asked_for(first, self._relaxed):
            self._kernels = proof.kernels_of(tree, first)
            if not self._on_gpu:
                self._building = Building(leases, self._limits, self._patience, self._kernels, first)

    def _built(self, leases: Leases, trials: Trials) -> dict[str, Any]:
        """What was compiled for the proof; for a task without one, what the candidate's own process had compiled."""
        if self._on_gpu:
            return {"target": self._limits.target, "kernels": self._assembled}
        return self._report(leases, trials) if self._building is None else self._building.finish()

    def _prove(self, trials: Trials, leases: Leases) -> None:
        kernels = proof.Kernels(self._kernels)
        found = proof.prove(self._job, trials, leases.worker, kernels, functools.partial(self._assemble, leases))
        if found is not None:
            self.speedup, self.timed, self.details["timing"] = found.speedup, True, found.report()

    def _assemble(self, leases: Leases, message: Assemble | BuildNative) -> Assembled:
        """For the process of the proof: what its kernels need is what is reported."""
        assembled = machine_code(leases.program, self._limits, message)
        usage = parse_usage(assembled.printed)
        if isinstance(message, Assemble) and assembled.code is not None and usage is not None:
            self._assembled.append(described(entry_of(message.assembly), usage))
        return assembled

    def _explain(self, found: Found, leases: Leases, reference: Reference) -> None:
        """Raises `Found` where the compiler has a better reason."""
        if self._on_gpu:
            return  # the kernels were compiled for this very device
        if isinstance(found, Lacks) or found.fault in _EXPLAINED or found.details.get("rule") == "kernel_is_not_triton":
            with self._question(reference) as (question, fds):
                compilation.explain(leases, self._limits, self._patience, question, fds)

    def _report(self, leases: Leases, trials: Trials) -> dict[str, Any]:
        """For a task without a proof: what the candidate's own process had compiled."""
        with self._question(trials.reference) as (question, fds):
            return compilation.report(leases, self._limits, self._patience, question, fds, frozenset(trials.launched))

    @contextlib.contextmanager
    def _question(self, reference: Reference) -> Iterator[tuple[Compile, tuple[int, ...]]]:
        """With inputs of its own, which no trial has."""
        secret, guard_bytes = self._job.secret, self._limits.guard_bytes
        with contextlib.ExitStack() as held:
            init = held.enter_context(
                contextlib.closing(Arena(reference.init_arguments(derive_seed(secret, "init")), [], guard_bytes))
            )
            call = held.enter_context(
                contextlib.closing(Arena(reference.inputs(derive_seed(secret, "inputs", "compile")), [], guard_bytes))
            )
            seed = derive_seed(secret, "weights")
            question = Compile(self._job.candidate_src, self._limits.target, init.spec, call.spec, seed)
            yield question, (init.fd, call.fd)


def _refused_configuration(tree: ast.Module, found: Found) -> str | None:
    """The autotuned kernel that the target does not take with the configuration that was chosen for it."""
    kernel = str(found.details.get("kernel", "")).rpartition(":")[0]
    return kernel if kernel and found.fault in PER_CONFIGURATION and source_policy.mentions(tree, "autotune") else None
