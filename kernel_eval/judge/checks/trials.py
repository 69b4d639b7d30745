"""The trials of a candidate in native code on a GPU: calls in one worker, whose answers are compared.

Invariant: all calls look alike to the worker, and each is checked in the same way. Each answer is copied when it
arrives, and compared with its memory again after the last call, which exposes a buffer that is used twice.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import torch

from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import Answered, Call, Constructed, Done, Init, Load, SendState, WriteAgain
from weir.kernel_eval.ipc.tensor_arena import Arena
from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.channel.worker_channel import RequestHandler, WorkerChannel
from weir.kernel_eval.judge.checks.answer_spread import check_told
from weir.kernel_eval.judge.checks.expected_answers import check_form, difference, dtypes_of, raw
from weir.kernel_eval.judge.checks.recording import check_tensors
from weir.kernel_eval.judge.source import provenance
from weir.kernel_eval.judge.state.questions import variants_of
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.answers import Expected
from weir.kernel_eval.tasks.input_variants import Variant
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed


class Trials:
    """One candidate in one worker. `run` once, then `close`."""

    def __init__(self, job: Job, reference: Reference, deadline: Deadline) -> None:
        self._job = job
        self._limits = job.limits
        self.reference = reference
        self.deadline = deadline
        self._relaxed = frozenset(job.relaxed_rules)
        self._arenas: list[Arena] = []
        self._answers: list[list[torch.Tensor]] = []
        self._told: set[int] = set()
        self.launched: set[str] = set()
        self.state: list[torch.Tensor] = []  # the contents of each storage of the constructed model, as bytes
        self.first: Trace | None = None
        self.model: Any = None  # the reference's
        self.num_answered = 0
        self.details: dict[str, Any] = {}

    def run(self, lease: socket.socket, handle_request: RequestHandler, after_first: Callable[[Trace], None]) -> None:
        """Run all trials; returns if every answer is right. `after_first` gets the trace of the first right answer.

        Raises `FaultDetected` and the errors of the reference.
        """
        worker = WorkerChannel(lease, self._limits, self.deadline, handle_request=handle_request)
        try:
            self._run_all(worker, after_first)
        finally:
            try:
                self._report_end(worker)
            finally:
                worker.close()

    def close(self) -> None:
        """Release the shared memory."""
        for arena in self._arenas:
            arena.close()

    def _run_all(self, worker: WorkerChannel, after_first: Callable[[Trace], None]) -> None:
        secret, limits, reference = self._job.secret, self._limits, self.reference
        weight_seed = derive_seed(secret, "weights")
        worker.prepare(limits.load_timeout_s)
        worker.request(Load(self._job.candidate_src), Done, "load", limits.load_timeout_s)
        init_arguments = reference.init_arguments(derive_seed(secret, "init"))
        arena = self._arena(init_arguments, [])
        constructed = worker.request(
            Init(arena.spec, weight_seed), Constructed, "init", limits.init_timeout_s, arena.fd
        )
        self._take_state(worker, constructed)
        self.model = reference.build(init_arguments, weight_seed)
        variants = variants_of(reference, self.model, secret, self._job.num_correct_trials, self._relaxed)
        model = self.model  # as the calls so far leave it
        for trial, variant in enumerate(variants):
            inputs, expected, drawn = reference.question(model, derive_seed(secret, "inputs", trial), variant)
            self._count_draw(drawn)
            self._trial(worker, model, inputs, expected)
            model = reference.after(model, inputs)
            self.num_answered += 1
            if trial == 0 and self.first is not None:
                after_first(self.first)
        self._check_reused_outputs(worker)
        check_told(self._told, len(self._answers[0]) if self._answers else 0)
        if reference.draws_on_host:
            self.details["drawn_on_host"] = True

    def _count_draw(self, drawn: Variant) -> None:
        """Count the trials by kind of inputs: a task that accepts none but its own is tried less hard."""
        counts = self.details.setdefault("inputs", {})
        counts[drawn.draw.value] = counts.get(drawn.draw.value, 0) + 1

    def _take_state(self, worker: WorkerChannel, constructed: Constructed) -> None:
        sizes = constructed.state_bytes
        if not sizes:
            return
        needed = sum(sizes) + 2 * self._limits.guard_bytes * len(sizes)
        if min(sizes) < 0 or needed > self._limits.memory_bytes:
            message = f"the model holds {len(sizes)} pieces of memory, {needed} bytes with their guard zones"
            raise FaultDetected(Stage.LOADED, Fault.OUT_OF_MEMORY, message, phase="init")
        arena = Arena(
            [], [torch.empty(size, dtype=torch.uint8) for size in sizes], self._limits.guard_bytes, on_gpu=True
        )
        try:
            worker.request(SendState(arena.spec), Done, "init", self._limits.init_timeout_s, arena.fd)
            self.state = arena.take_outputs()
        finally:
            arena.close()

    def _arena(self, arguments: list[Any], outputs: list[torch.Tensor]) -> Arena:
        arena = Arena(arguments, outputs, self._limits.guard_bytes, on_gpu=True, watched=True)
        self._arenas.append(arena)
        return arena

    def _trial(self, worker: WorkerChannel, model: Any, inputs: list[Any], expected: Expected) -> None:
        arena = self._arena(inputs, expected.outputs)
        timeout_s = self._limits.call_timeout_s + self._limits.compile_timeout_s
        answer = worker.request(Call(arena.spec), Answered, "call", timeout_s, arena.fd)
        self.launched.update(answer.trace.launched)
        self.first = self.first or answer.trace
        self._check_conduct(answer, arena, expected, dtypes_of(inputs))
        check_form(answer, expected.outputs, self.reference.effects(model))
        outputs = arena.take_outputs()
        self._answers.append(outputs)
        wrong = difference(self.reference, model, inputs, expected, outputs, self._told)
        if wrong is not None:
            differs = self._answers_differently(worker, inputs, expected, outputs)
            fault = Fault.NONDETERMINISTIC if differs else wrong.fault
            raise FaultDetected(Stage.ANSWERED, fault, wrong.message + differs, trial=self.num_answered + 1)
        if not expected.returns_input and any(output.shares_memory_with_input for output in answer.outputs):
            self._break_rule("output_is_input", "an output lies in the memory of an input")

    def _answers_differently(
        self, worker: WorkerChannel, inputs: list[Any], expected: Expected, outputs: list[torch.Tensor]
    ) -> str:
        """Repeat a call whose answer was wrong, at other addresses; the suffix of the message if the answer changes."""
        arena = self._arena(inputs, expected.outputs)
        worker.request(Call(arena.spec), Answered, "call", self._limits.call_timeout_s, arena.fd)
        again = arena.take_outputs()
        same = all(torch.equal(raw(one), raw(two)) for one, two in zip(again, outputs, strict=True))
        return "" if same else "; the same inputs got another answer when they were sent again"

    def _break_rule(self, rule: str, observation: str) -> None:
        if rule not in self._relaxed:
            raise rule_broken(rule, observation)

    def _check_conduct(self, answer: Answered, arena: Arena, expected: Expected, given: list[str]) -> None:
        """Check the side effects of a call: its operators, memory outside of tensors, changed inputs."""
        check_tensors(answer.trace, answer.outputs)
        violation = provenance.broken_by(answer.trace, self._relaxed, permitted=self._job.permitted, given=given)
        if violation is not None:
            raise rule_broken(*violation)
        overrun, changed = arena.damage()
        if overrun or answer.overrun:
            raise FaultDetected(
                Stage.LOADED,
                Fault.MEMORY_FAULT,
                answer.overrun or "memory beside an input was written to: a store goes out of bounds",
            )
        if changed and not expected.changed_inputs:
            self._break_rule("input_changed", "an input was written to, which the task's own code does not do")

    def _check_reused_outputs(self, worker: WorkerChannel) -> None:
        worker.request(WriteAgain(), Done, "call", self._limits.call_timeout_s)
        calls = [arena for arena in self._arenas if arena.spec.outputs]
        for arena, before in zip(calls, self._answers, strict=True):
            for now, then in zip(arena.take_outputs(), before, strict=True):
                if not torch.equal(raw(now), raw(then)):
                    self._break_rule("output_reused", "the answer to one call was overwritten by a later call")

    def _report_end(self, worker: WorkerChannel) -> None:
        exited = worker.end()
        self.details["cpu_s"] = round(exited.cpu_s, 4)
        self.details["max_rss_bytes"] = exited.max_rss_bytes
        # a GPU's driver starts threads itself; what a thread computes there is not part of the proof and its timing
        if exited.files_left:
            message = f"{exited.files_left} files were left where other evaluations would find them"
            raise FaultDetected(Stage.LOADED, Fault.SANDBOX_VIOLATION, message)
        if worker.output_bytes:
            self.details["output_tail"] = worker.output_tail()
        if worker.output_bytes >= self._limits.output_bytes:
            message = f"more than {self._limits.output_bytes} bytes were printed"
            raise FaultDetected(Stage.LOADED, Fault.OUTPUT_FLOOD, message)
