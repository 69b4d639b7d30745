"""The judge: makes inputs, has the worker answer, runs the reference, compares, and says what it found.

Invariant: it never runs code of the candidate, and what it knows (expected values, seeds of inputs) never leaves it.
Every call of the candidate is checked in the same way, so none is worth treating differently. A candidate's answer is
copied when it is given and looked at again after the last call: a buffer that is used twice shows.
"""

from __future__ import annotations

import ast
import functools
import socket
import time
from typing import Any

import torch

from weir.kernel_eval import evidence, policy, proof, rules, timing
from weir.kernel_eval.arena import Arena, UnsupportedValue, tensors_among
from weir.kernel_eval.compare import Difference, compare
from weir.kernel_eval.compilation import Compilation
from weir.kernel_eval.judgement import Found, Job, Judgement, broken
from weir.kernel_eval.leases import Leases
from weir.kernel_eval.native_check import NativeCheck
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reference import Expected, InvalidReference, Reference, UnsupportedReference
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.seeds import derive_seed
from weir.kernel_eval.trace import Trace
from weir.kernel_eval.variants import PLAIN, Variant, plan
from weir.kernel_eval.worker_channel import WorkerChannel, ZygoteLost
from weir.kernel_eval.worker_messages import (
    Answered,
    Call,
    Compile,
    Constructed,
    Done,
    Init,
    Load,
    Output,
    SendState,
    WriteAgain,
)

# what a candidate is told of the compiler's refusal instead of: the interpreter runs on where no GPU would
_EXPLAINED = frozenset(
    {
        *(Fault.RUNTIME_ERROR, Fault.OUTPUT_MISMATCH, Fault.NON_FINITE),
        *(Fault.SHAPE_MISMATCH, Fault.DTYPE_MISMATCH, Fault.MEMORY_FAULT, Fault.SEGFAULT, Fault.UNSUPPORTED),
    }
)


def judge(job: Job, leases: Leases) -> Judgement:
    """One evaluation, from the candidate's source to a judgement. Raises only what is our own mistake."""
    started = time.monotonic()
    evaluation = _Evaluation(job) if job.backend == "triton" else NativeCheck(job, job.backend)
    try:
        evaluation.run(leases, _reference(job.reference_src, job.limits.reference_timeout_s))
        stage, fault, message = Stage.CORRECT, None, ""
    except Found as found:
        stage, fault, message = found.stage, found.fault, found.message
        evaluation.details.update(found.details)
    except (InvalidReference, UnsupportedValue) as error:
        stage, fault, message = Stage.NOTHING, Fault.INVALID_REFERENCE, str(error)
    except UnsupportedReference as error:
        stage, fault, message = Stage.NOTHING, Fault.UNSUPPORTED, str(error)
    except ZygoteLost:
        stage, fault, message = Stage.NOTHING, Fault.SERVER_ERROR, "a process that forks workers is gone"
    finally:
        leases.close()
        evaluation.close()
    return Judgement(
        stage=stage,
        fault=fault,
        message=message,
        trials=evaluation.trials,
        seconds=time.monotonic() - started,
        details=evaluation.details,
    )


@functools.lru_cache(maxsize=256)
def _reference(source: str, timeout_s: float) -> Reference:
    return Reference(source, timeout_s)


class _Evaluation:
    """The steps of one evaluation, and what they leave to clean up."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._limits = job.limits
        self._arenas: list[Arena] = []
        self._answers: list[list[torch.Tensor]] = []
        self._call_us: list[float] = []
        self._launched: set[str] = set()
        self._relaxed = frozenset(job.relaxed_rules)
        self._state: list[torch.Tensor] = []
        self._first: Trace | None = None
        self.trials = 0
        self.details: dict[str, Any] = {}

    def run(self, leases: Leases, reference: Reference) -> None:
        """Return if the candidate is correct. Raises `Found` and the errors of the reference."""
        tree = self._check_source()
        compilation = Compilation(leases.compiler, leases.program, self._limits)
        try:
            self._start_compiling(compilation, reference)
            try:
                model = self._run_trials(leases.worker, reference)
            except Found as found:
                if found.fault in _EXPLAINED:
                    compilation.explain()
                raise
            no_triton = self._find_foreign_language(tree, reference, model, leases.worker)
            self.details["compile"] = compilation.finish(frozenset(self._launched))
            if no_triton is not None:
                raise no_triton
        finally:
            compilation.close()

    def _start_compiling(self, compilation: Compilation, reference: Reference) -> None:
        """Inputs of its own, which no trial has."""
        secret = self._job.secret
        init = self._arena(reference.init_arguments(derive_seed(secret, "init")), [])
        call = self._arena(reference.inputs(derive_seed(secret, "inputs", "compile")), [])
        seed = derive_seed(secret, "weights")
        message = Compile(self._job.candidate_src, self._limits.target, init.spec, call.spec, seed)
        compilation.start(message, (init.fd, call.fd))

    def _run_trials(self, lease: socket.socket, reference: Reference) -> Any:
        worker = WorkerChannel(lease, self._limits)
        try:
            return self._ask_all(worker, reference)
        finally:
            try:
                self._describe_end(worker)
            finally:
                worker.close()

    def _find_foreign_language(
        self, tree: ast.Module, reference: Reference, model: Any, lease: socket.socket
    ) -> Found | None:
        """The proof; only that a kernel is no Triton is returned and not raised: the compiler may say so first."""
        assert self._first is not None
        if not proof.is_asked_for(self._first, self._relaxed):
            return None
        try:
            kernels = proof.kernels_of(tree, self._first)
        except Found as found:
            return found
        self._prove(kernels, self._first, reference, model, lease)
        return None

    def close(self) -> None:
        """Give back shared memory."""
        for arena in self._arenas:
            arena.close()

    def _check_source(self) -> ast.Module:
        tree = policy.parsed(self._job.candidate_src)
        unsupported = policy.find_unsupported(tree)
        if unsupported:
            raise Found(Stage.NOTHING, Fault.UNSUPPORTED, f"the interpreter cannot judge {unsupported}")
        seen = rules.broken_by_source(tree, self._relaxed)
        if seen is not None:
            raise broken(*seen)
        return tree

    def _ask_all(self, worker: WorkerChannel, reference: Reference) -> Any:
        secret, limits = self._job.secret, self._limits
        weight_seed = derive_seed(secret, "weights")
        worker.ask(Load(self._job.candidate_src), Done, "load", limits.load_timeout_s)
        init_arguments = reference.init_arguments(derive_seed(secret, "init"))
        arena = self._arena(init_arguments, [])
        constructed = worker.ask(Init(arena.spec, weight_seed), Constructed, "init", limits.init_timeout_s, arena.fd)
        self._take_state(worker, constructed)
        model = reference.build(init_arguments, weight_seed)
        num_trials = self._job.num_correct_trials + self._job.num_perf_trials
        for trial, variant in enumerate(plan(num_trials, self._relaxed, derive_seed(secret, "variants"))):
            inputs, expected = reference.question(model, derive_seed(secret, "inputs", trial), variant)
            self._trial(worker, reference, model, inputs, expected)
            self.trials += 1
        self._look_again(worker)
        if self._job.num_perf_trials:
            self.details["timing"] = {"timing_kind": "interpreter", **timing.summarize(self._call_us).in_ms()}
        return model

    def _take_state(self, worker: WorkerChannel, constructed: Constructed) -> None:
        sizes = constructed.state_bytes
        if not sizes:
            return
        if min(sizes) < 0 or sum(sizes) > self._limits.memory_bytes:
            raise Found(Stage.LOADED, Fault.OUT_OF_MEMORY, f"the model holds {sum(sizes)} bytes", phase="init")
        arena = Arena([], [torch.empty(size, dtype=torch.uint8) for size in sizes], self._limits.guard_bytes)
        try:
            worker.ask(SendState(arena.spec), Done, "init", self._limits.init_timeout_s, arena.fd)
            self._state = arena.take_outputs()
        finally:
            arena.close()

    def _prove(self, kernels: str, trace: Trace, reference: Reference, model: Any, lease: socket.socket) -> None:
        """The launches of the first call must answer inputs that the candidate has never seen."""
        secret = self._job.secret
        variant = PLAIN if self.trials < 2 or "varied_inputs" in self._relaxed else Variant(scale=-1.0)
        inputs, expected = reference.question(model, derive_seed(secret, "proof"), variant)
        arena = Arena([tensors_among(inputs), self._state], expected.outputs, self._limits.guard_bytes)
        worker = WorkerChannel(lease, self._limits)
        try:
            outputs = proof.replay(worker, kernels, trace, arena, self._limits.call_timeout_s, self._relaxed)
        finally:
            worker.end()
            worker.close()
            arena.close()
        difference = self._difference(reference, model, inputs, expected, outputs)
        if difference is not None:
            raise broken("replay_differs", f"other inputs, without the candidate: {difference.message}")

    def _arena(self, arguments: list[Any], outputs: list[torch.Tensor]) -> Arena:
        arena = Arena(arguments, outputs, self._limits.guard_bytes)
        self._arenas.append(arena)
        return arena

    def _trial(
        self, worker: WorkerChannel, reference: Reference, model: Any, inputs: list[Any], expected: Expected
    ) -> None:
        arena = self._arena(inputs, expected.outputs)
        started = time.perf_counter()
        answer = worker.ask(Call(arena.spec), Answered, "call", self._limits.call_timeout_s, arena.fd)
        self._call_us.append((time.perf_counter() - started) * 1e6)
        self._launched.update(f"{launch.kernel}:{launch.line}" for launch in answer.trace.launches)
        self._first = self._first or answer.trace
        self._check_conduct(answer, arena, expected)
        _check_form(answer.outputs, expected.outputs)
        outputs = arena.take_outputs()
        self._answers.append(outputs)
        difference = self._difference(reference, model, inputs, expected, outputs)
        if difference is not None:
            differs = self._answers_differently(worker, inputs, expected, outputs)
            fault = Fault.NONDETERMINISTIC if differs else difference.fault
            raise Found(Stage.ANSWERED, fault, difference.message + differs, trial=self.trials + 1)
        if not expected.returns_input and any(output.shares_memory_with_input for output in answer.outputs):
            self._hack("output_is_input", "an output lies in the memory of an input")

    def _answers_differently(
        self, worker: WorkerChannel, inputs: list[Any], expected: Expected, outputs: list[torch.Tensor]
    ) -> str:
        """Ask for a wrong answer once more, at other addresses; what to add to the message if another one comes."""
        arena = self._arena(inputs, expected.outputs)
        worker.ask(Call(arena.spec), Answered, "call", self._limits.call_timeout_s, arena.fd)
        again = arena.take_outputs()
        same = all(torch.equal(_bytes(one), _bytes(two)) for one, two in zip(again, outputs, strict=True))
        return "" if same else "; the same inputs got another answer when they were sent again"

    def _difference(
        self, reference: Reference, model: Any, inputs: list[Any], expected: Expected, outputs: list[torch.Tensor]
    ) -> Difference | None:
        """What is wrong with an answer, held against the reference in its own precision and else in float64."""
        differences = _compare_all(outputs, expected.outputs)
        if not differences:
            return None
        precise = reference.expected_float64(model, inputs)
        return differences[0] if precise is None or _compare_all(outputs, precise) else None

    def _hack(self, rule: str, seen: str) -> None:
        if rule not in self._relaxed:
            raise broken(rule, seen)

    def _check_conduct(self, answer: Answered, arena: Arena, expected: Expected) -> None:
        """What a call did beside answering."""
        seen = evidence.broken_by(answer.trace, self._relaxed)
        if seen is not None:
            raise broken(*seen)
        overrun, changed = arena.damage()
        if overrun or answer.overrun:
            raise Found(
                Stage.LOADED,
                Fault.MEMORY_FAULT,
                answer.overrun or "memory beside an input was written to: a store goes out of bounds",
            )
        if changed and not expected.changes_inputs:
            self._hack("input_changed", "an input was written to, which the task's own code does not do")

    def _look_again(self, worker: WorkerChannel) -> None:
        worker.ask(WriteAgain(), Done, "call", self._limits.call_timeout_s)
        calls = [arena for arena in self._arenas if arena.spec.outputs]
        for arena, before in zip(calls, self._answers, strict=True):
            for now, then in zip(arena.take_outputs(), before, strict=True):
                if not torch.equal(_bytes(now), _bytes(then)):
                    self._hack("output_reused", "the answer to one call was overwritten by a later call")

    def _describe_end(self, worker: WorkerChannel) -> None:
        exited = worker.end()
        self.details["cpu_s"] = round(exited.cpu_s, 4)
        self.details["max_rss_bytes"] = exited.max_rss_bytes
        if exited.num_threads > 1 and exited.exit_code is None:
            self._hack("background_thread", f"{exited.num_threads - 1} threads were left running")
        if exited.files_left:
            message = f"{exited.files_left} files were left where other evaluations would find them"
            raise Found(Stage.LOADED, Fault.SANDBOX_VIOLATION, message)
        if worker.output_bytes:
            self.details["output_tail"] = worker.output_tail()
        if worker.output_bytes >= self._limits.output_bytes:
            message = f"more than {self._limits.output_bytes} bytes were printed"
            raise Found(Stage.LOADED, Fault.OUTPUT_FLOOD, message)


def _check_form(outputs: tuple[Output, ...], expected: list[torch.Tensor]) -> None:
    if len(outputs) != len(expected):
        raise Found(Stage.LOADED, Fault.SHAPE_MISMATCH, f"{len(outputs)} outputs, expected {len(expected)}")
    for index, (output, tensor) in enumerate(zip(outputs, expected, strict=True)):
        if output.kind != "Tensor":
            raise Found(
                Stage.LOADED, Fault.SHAPE_MISMATCH, f"output {index} is a {output.kind}, expected a torch.Tensor"
            )
        if output.shape != tuple(tensor.shape):
            message = f"output {index} has shape {list(output.shape)}, expected {list(tensor.shape)}"
            raise Found(Stage.LOADED, Fault.SHAPE_MISMATCH, message)
        dtype = str(tensor.dtype).removeprefix("torch.")
        if output.dtype != dtype:
            raise Found(Stage.LOADED, Fault.DTYPE_MISMATCH, f"output {index} is {output.dtype}, expected {dtype}")


def _compare_all(outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> list[Difference]:
    compared = (compare(got, wanted) for got, wanted in zip(outputs, expected, strict=True))
    return [difference for difference in compared if difference is not None]


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)
