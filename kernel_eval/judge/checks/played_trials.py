"""The trials of a candidate: its record, played on the inputs of each trial without the candidate.

A player runs the operators and the IR of the record (`replay/player.py`), or on a GPU the machine code that was made of
that IR (`replay/device/player.py`), and holds nothing of the candidate but those.
Invariant: every answer that is compared comes from a player, so that each trial is a proof. The rules on the record are
checked before it is played, those on memory after.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec
import torch

from weir.kernel_eval.ipc.forkserver import PLAYER, Leases
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import DeviceKernel, Done, LoadRecord, Play, Played, Recorded
from weir.kernel_eval.ipc.tensor_arena import Arena, tensors_among
from weir.kernel_eval.ipc.trace import Operator, Place, StorageKind, Trace
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks.expected_answers import (
    check_apart,
    check_form,
    difference,
    dtypes_of,
    least_stored,
    left_out,
    num_made,
    raw,
)
from weir.kernel_eval.judge.checks.tolerance import TOLERANCES, is_within
from weir.kernel_eval.judge.source import provenance
from weir.kernel_eval.judge.state.counterparts import Counterpart, counterparts
from weir.kernel_eval.judge.state.questions import Question, Subject
from weir.kernel_eval.judge.state.remains import Remains, comparable, may_stay, overwritten, remains_of, with_remains
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.answers import Expected
from weir.kernel_eval.tasks.effects.side_effects import SideEffects, named_tensors
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed

_LEAST_OF_FEW = 0.5  # of the elements that differ from what torch copies or fills, where these are few
ROUNDED_DOTS_FACTOR = 100.0  # how much further an answer may be off if a device rounds its products of float32
_GIVEN: tuple[StorageKind, ...] = ("input", "state")  # memory that a task may give back
_LOAD_FACTOR = 2.0
_TUNING_S = 20.0  # for a player on a GPU, which chooses configurations in its first call
_DIFFERS = "; the same inputs got another answer when the call was played again"
_ORDER = (
    "; they are right if programs, atomics and the elements of reductions go by their numbers, which a device does not "
    "promise: an operator given to tl.reduce has to be associative and to commute"
)
_LEAST_REORDERED = 2  # plays of a record: one of them may have inputs that give one value everywhere
_WAYS_S = 5.0  # for other configurations of autotuned kernels
_NO_MORE = (Fault.TIMEOUT, Fault.OUT_OF_MEMORY)

Kernels = tuple[DeviceKernel | None, ...]


class PlayedTrials:
    """The trials of one candidate in one player, which is forked by the constructor. The owner must call `close`."""

    def __init__(self, job: Job, leases: Leases, deadline: Deadline, reference: Reference) -> None:
        self._limits = job.limits
        self._secret = job.secret
        self._relaxed = frozenset(job.relaxed_rules)
        self._permitted = job.permitted
        self._reference = reference
        self._on_gpu = job.limits.gpu is not None
        self._player = WorkerChannel(leases.worker, job.limits, deadline, PLAYER if self._on_gpu else "")
        self.chosen: dict[int, tuple[int, ...]] = {}  # by record: the IR that autotuned launches took, by number
        self._rounded: set[int] = set()  # records whose products of float32 a device would round to TF32
        self._num_plays = Counter[int]()  # by record
        self._traces: list[Trace] = []
        self._num_loaded = 0
        self._has_torch_work: list[bool] = []
        self.play_us: list[float] = []
        self.told: set[int] = set()  # outputs for which a draw told a right answer from zeros
        self.num_answered = 0
        self._most_stored: dict[int, float] = {}  # by output: the largest share that kernels stored in a trial
        self._stored: set[int] = set()  # the outputs of which they stored enough in a trial
        self._held: dict[str, Counterpart] | None = None  # of what the task's call changes of its model
        self._remains: list[Remains] = []  # by record
        self._subject: Subject | None = None  # of the first trial
        self._called: Any = None  # the reference's model after the calls so far, once a call changes what a model holds

    @property
    def player(self) -> WorkerChannel:
        """The channel of the player, for what is timed there."""
        return self._player

    @property
    def rounds_dots(self) -> bool:
        """Whether a device would round products of float32 to TF32."""
        return bool(self._rounded)

    def prepare(self) -> None:
        """Have the player initialise its GPU, if it has one. Raises `FaultDetected` (`gpu_unhealthy`)."""
        if self._on_gpu:
            self._player.prepare(self._limits.load_timeout_s)

    def load(
        self,
        recorded: Recorded,
        subject: Subject,
        question: Question,
        build: Callable[[], Kernels] | None = None,
        *,
        only_moves: bool,
    ) -> list[Operator]:
        """Check a record of a call against the rules, and have the player read it. Raises `FaultDetected`.

        Returns the steps in which torch computed, as the server permits. `build`: makes machine code of the IR, for a
        GPU. `only_moves`: the task's own code moves data, and computes nothing.
        """
        expected, given = question.expected, dtypes_of(question.inputs)
        trace, relaxed, permitted = recorded.trace, self._relaxed, self._permitted
        violation = provenance.broken_by(trace, relaxed, only_moves=only_moves, permitted=permitted, given=given)
        if violation is not None:
            raise rule_broken(*violation)
        check_form(recorded, expected.outputs, self._reference.effects(subject.model))
        if only_moves:
            self._check_order(trace, expected)
        check_apart(trace.outputs, expected.outputs)
        reason = provenance.untransferable(trace)
        if reason is not None:
            raise rule_broken("replay_differs", f"the call cannot be made without the candidate: {reason}")
        remains, needed = self._played_of(trace, subject, question)
        self._remains.append(remains)
        self._num_loaded += 1
        message = LoadRecord(needed, recorded.irs) if build is None else LoadRecord(needed, (), build())
        self._request(message, Done, self._limits.call_timeout_s)
        self._traces.append(trace)
        work = provenance.torch_work(trace, relaxed, only_moves=only_moves, permitted=permitted, given=given)
        self._has_torch_work.append(bool(work))
        return work

    def _played_of(self, trace: Trace, subject: Subject, question: Question) -> tuple[Remains, Trace]:
        """What is compared beside the answer, and the record as it is played. Raises `FaultDetected`."""
        relaxed, permitted, given = self._relaxed, self._permitted, dtypes_of(question.inputs)
        effects = self._reference.effects(subject.model)
        if self._held is None:
            self._held = counterparts(subject.model, effects.state, subject.state, subject.named)
        remains = remains_of(effects, subject.model, self._held)
        whole = with_remains(trace, remains, self._held, question.inputs, subject.state)
        changed = whole.outputs[len(trace.outputs) :][: len(remains.inputs)]
        violation = provenance.broken_by(
            msgspec.structs.replace(whole, outputs=changed), relaxed, permitted=permitted, given=given
        )
        if violation is not None and violation[0] == "torch_operator":
            raise rule_broken(*violation)
        needed = provenance.needed(whole, relaxed, permitted=permitted, updates_state=bool(remains.state))
        return remains, needed

    def try_ways(self, ways: Sequence[Recorded], subject: Subject, question: Question) -> int:
        """Play records of a call with other configurations of its kernels, and compare their answers.

        Returns how many were played: as many as the time allows, and as the player can play. Raises `FaultDetected`.
        """
        inputs, expected = question
        ends_at, num_played = time.monotonic() + _WAYS_S, 0
        for way in ways:
            if time.monotonic() > ends_at:
                break
            try:
                outputs = self._played_way(way, subject, question)
            except FaultDetected as error:
                if error.fault is Fault.UNSUPPORTED:
                    continue
                if error.fault in _NO_MORE:
                    break
                raise
            wrong = difference(self._reference, subject.model, inputs, expected, outputs)
            if wrong is not None:
                self._refuse(wrong.fault, f"another configuration of an autotuned kernel: {wrong.message}")
            num_played += 1
        return num_played

    def _played_way(self, way: Recorded, subject: Subject, question: Question) -> list[torch.Tensor]:
        inputs, expected = question
        remains, needed = self._played_of(way.trace, subject, question)
        self._request(LoadRecord(needed, way.irs), Done, self._limits.call_timeout_s)
        self._num_loaded += 1
        wanted = self._reference.expected(remains.of(subject.model), inputs).outputs if remains else []
        arguments = [tensors_among(inputs), subject.state]
        with contextlib.closing(Arena(arguments, [*expected.outputs, *wanted], self._limits.guard_bytes)) as arena:
            play = Play(self._num_loaded - 1, arena.spec, marks=False)
            played: Played = self._request(play, Played, self._limits.call_timeout_s, arena.fd)
            self._check_inputs(subject.model, played, expected)
            return arena.take_outputs()[: len(expected.outputs)]

    def run(
        self,
        record: int,
        subject: Subject,
        question: Question,
        meanwhile: Callable[[], None] = lambda: None,
        *,
        is_own: bool = False,
        counts: bool = True,
    ) -> None:
        """Play a record on a trial's inputs, and compare its answer. Raises `FaultDetected`.

        `meanwhile`: what this process does while the player works. `is_own`: the inputs are as the task draws them, so
        that a term below the tolerance is looked for. `counts`: whether it is one of the trials.
        """
        inputs, expected = question
        arguments = [tensors_among(inputs), subject.state]
        guard_bytes, on_gpu = self._limits.guard_bytes, self._on_gpu
        self._subject = self._subject or subject
        is_first = subject is self._subject and self._called is None
        wanted = self._wanted(record, subject.model, inputs)
        with contextlib.closing(Arena(arguments, [*expected.outputs, *wanted], guard_bytes, on_gpu=on_gpu)) as arena:
            started = time.perf_counter()
            order = self._order(record)
            play = Play(record, arena.spec, state="kept" if is_first else "given", order=order)
            played = self._play(play, arena, meanwhile)
            self.play_us += [(time.perf_counter() - started) * 1e6] if counts else []
            outputs, left = _split(arena.take_outputs(), len(wanted))
            is_rounded = bool(played.num_rounded_dots) and record not in self._rounded
            goes_on = subject is self._subject and self._goes_on(played, subject, inputs)
            if not (is_rounded or goes_on or self._on_gpu):
                arena.unmap()  # the comparison needs the memory
            if played.chosen:
                self.chosen[record] = played.chosen
            self._check_inputs(subject.model, played, expected)
            wrong = difference(self._reference, subject.model, inputs, expected, outputs, self.told)
            is_near = wrong is None
            if is_near and is_own:
                wrong = left_out(self._reference, subject.model, inputs, expected, outputs)
            if wrong is not None:
                if is_near:
                    suffix = ""
                elif self._on_gpu:
                    suffix = _DIFFERS if self._answers_differently(record, arena, outputs) else ""
                else:
                    suffix = _ORDER if order and self._is_right_in_order(record, subject, question, wanted) else ""
                fault = Fault.NONDETERMINISTIC if suffix else wrong.fault
                message = wrong.message + (suffix or subject.advice)
                raise FaultDetected(Stage.ANSWERED, fault, message, trial=self.num_answered + 1)
            self._check_left(record, subject, subject.model, inputs, wanted, left)
            self._check_state(record, subject, played, inputs)
            self._check_origin(record, played, expected, inputs, self._reference.effects(subject.model))
            if goes_on:
                self._call_again(record, subject, inputs, arena)
            if is_rounded:
                self._rounded.add(record)
                self._play(Play(record, arena.spec, exact_dots=False, marks=False), arena)
                self._check_rounded(_split(arena.take_outputs(), len(wanted))[0], expected)
        self.num_answered += counts

    def _order(self, record: int) -> int:
        """The seed of an order of programs; 0, for that of their numbers, in every other play of a record."""
        self._num_plays[record] += 1
        number = self._num_plays[record]
        is_drawn = number <= _LEAST_REORDERED or number % 2
        return derive_seed(self._secret, "order", record, number) if is_drawn else 0

    def _check_inputs(self, model: Any, played: Played, expected: Expected) -> None:
        if not expected.changed_inputs.issuperset(played.changed_inputs):
            self._break_rule("input_changed", "an input was written to, which the task's own code does not do")
        if not expected.changed_inputs.issubset({*self._reference.effects(model).inputs, *played.changed_inputs}):
            self._refuse(Fault.OUTPUT_MISMATCH, "an input was left as it was, which the task's own code changes here")

    def _wanted(self, record: int, model: Any, inputs: list[Any]) -> list[torch.Tensor]:
        """What a call of the task leaves of what is compared beside its answer."""
        remains = self._remains[record]
        return self._reference.expected(remains.of(model), inputs).outputs if remains else []

    def _check_left(
        self,
        record: int,
        subject: Subject,
        model: Any,
        inputs: list[Any],
        wanted: list[torch.Tensor],
        left: list[torch.Tensor],
    ) -> None:
        """Check what a call left beside its answer. `model`: as it was before. Raises `FaultDetected`."""
        effects, remains = self._reference.effects(model), self._remains[record]
        for (name, one), want, have in zip(remains.each(), wanted, left, strict=True):
            if may_stay(effects, one, have, inputs, subject.model):
                continue
            precise = functools.partial(self._reference.expected_float64, one.of(model), inputs, [want])
            want, have = comparable(one, want, have, inputs, model, precise)
            expected = Expected([want], frozenset(), False)
            wrong = difference(self._reference, one.of(model), inputs, expected, [have])
            if wrong is not None:
                self._refuse(wrong.fault, f"{name} after the call, which the task's call changes: {wrong.message}")
        if remains.lacking:
            names = ", ".join(remains.lacking[:4])
            message = f"the task's call changes {names}, and ModelNew holds no such tensor with the same values"
            self._refuse(Fault.OUTPUT_MISMATCH, message)

    def _check_state(self, record: int, subject: Subject, played: Played, inputs: list[Any]) -> None:
        """Check what a call does with the state that it changes. Raises `FaultDetected`."""
        if played.changed_state:
            violation = provenance.broken_by(
                self._traces[record],
                self._relaxed,
                permitted=self._permitted,
                given=dtypes_of(inputs),
                changing=played.changed_state,
            )
            if violation is not None:
                raise rule_broken(*violation)
            model, state = subject.model, subject.state
            held = counterparts(model, {name for name, _ in named_tensors(model)}, state, subject.named)
            name = overwritten(self._reference.effects(model), model, held, played.changed_state, state)
            if name is not None:
                self._refuse(Fault.OUTPUT_MISMATCH, f"the call changes {name}, which the task's call does not do")

    def _goes_on(self, played: Played, subject: Subject, inputs: list[Any]) -> bool:
        """Whether the call is played once more, after earlier ones: some call has changed what the model holds."""
        if self._called is None and (played.changed_state or self._reference.effects(subject.model).keeps):
            self._called = self._reference.after(subject.model, inputs)
        return self._called is not None

    def _call_again(self, record: int, subject: Subject, inputs: list[Any], arena: Arena) -> None:
        """Play the call after those before, as the reference is called, and compare. Raises `FaultDetected`."""
        reference, model = self._reference, self._called
        expected, wanted = reference.expected(model, inputs), self._wanted(record, model, inputs)
        self._play(Play(record, arena.spec, marks=False, state="continued"), arena)
        outputs, left = _split(arena.take_outputs(), len(wanted))
        if reference.is_comparable(model, inputs, expected):
            wrong = difference(reference, model, inputs, expected, outputs)
            if wrong is not None:
                self._refuse(wrong.fault, f"a call after others, with the state that they left: {wrong.message}")
            self._check_left(record, subject, model, inputs, wanted, left)
        self._called = reference.after(model, inputs)

    def _refuse(self, fault: Fault, message: str) -> NoReturn:
        raise FaultDetected(Stage.ANSWERED, fault, message, trial=self.num_answered + 1)

    def _answers_differently(self, record: int, arena: Arena, outputs: list[torch.Tensor]) -> bool:
        """Whether a wrong answer changes when the same call is played again."""
        self._play(Play(record, arena.spec, marks=False), arena)
        again = arena.take_outputs()[: len(outputs)]
        return not all(torch.equal(raw(one), raw(two)) for one, two in zip(again, outputs, strict=True))

    def _is_right_in_order(self, record: int, subject: Subject, question: Question, wanted: list[torch.Tensor]) -> bool:
        """Whether a wrong answer becomes right where programs, atomics and reductions go by their numbers."""
        inputs, expected = question
        arguments, answers = [tensors_among(inputs), subject.state], [*expected.outputs, *wanted]
        with contextlib.closing(Arena(arguments, answers, self._limits.guard_bytes, on_gpu=False)) as arena:
            self._play(Play(record, arena.spec, marks=False), arena)
            outputs, _ = _split(arena.take_outputs(), len(wanted))
            return difference(self._reference, subject.model, inputs, expected, outputs) is None

    def _play(self, play: Play, arena: Arena, meanwhile: Callable[[], None] = lambda: None) -> Played:
        timeout_s = self._limits.call_timeout_s + (_TUNING_S if self._on_gpu else 0.0)
        played: Played = self._request(play, Played, timeout_s, arena.fd, meanwhile)
        return played

    def _request(
        self,
        message: LoadRecord | Play,
        kind: Any,
        timeout_s: float,
        fd: int | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Any:
        try:
            return self._player.request(message, kind, "replay", timeout_s * _LOAD_FACTOR, fd, meanwhile)
        except FaultDetected as error:
            if error.fault is not Fault.RUNTIME_ERROR:
                raise
            text = f"the launches of the call do not run without the candidate: {error.message}"
            raise rule_broken("replay_differs", text) from None

    def _check_origin(
        self, record: int, played: Played, expected: Expected, inputs: list[Any], effects: SideEffects
    ) -> None:
        """Check where a right answer comes from. Where torch may compute, it may store the answer too.

        Where it differs from an input, or from one value, at few places, kernels may store those alone. In calls where
        it differs at none, they need not, if they did in another.
        """
        trace = self._traces[record]
        if "no_kernel_launched" not in self._relaxed and not self._has_torch_work[record]:
            kinds = [
                kind
                for kind, is_one in zip(_GIVEN, (expected.returns_input, bool(effects.returns_state)), strict=True)
                if is_one
            ]
            given = provenance.given_back(trace, kinds)
            for index, share in enumerate(played.coverage[: len(expected.outputs)]):
                if self._on_gpu:  # there, what differs without kernels: an activation keeps positive values as they are
                    share = self._most_stored[index] = max(share, self._most_stored.get(index, 0.0))
                answer = expected.outputs[index]
                if share >= least_stored(answer) or index in given:
                    self._stored.add(index)
                elif num := num_made(answer, tensors_among(inputs)):
                    if share * answer.numel() < _LEAST_OF_FEW * num:
                        self._break_rule("kernel_did_no_work", f"kernels stored {share:.0%} of output {index}")
                    self._stored.add(index)
                elif index not in self._stored:
                    self._break_rule("kernel_did_no_work", f"kernels stored {share:.0%} of output {index}")
        if provenance.returns_input(trace) and not expected.returns_input:
            self._break_rule("output_is_input", "an output lies in the memory of an input")
        if provenance.returns_kept_memory(trace, but=effects.returns_state):
            self._break_rule("output_reused", "an output lies in memory that the model keeps for its next call")

    def _check_order(self, trace: Trace, expected: Expected) -> None:
        """Where moving data is the work, a view that puts the elements elsewhere has not done it."""
        for index, (output, tensor) in enumerate(zip(trace.outputs, expected.outputs, strict=True)):
            orders = (tensor.stride(), torch.empty(tensor.shape, device="meta").stride())
            if isinstance(output, Place) and not any(provenance.has_order(output, order) for order in orders):
                message = f"output {index} is a view that moves the data, which is the task: store it in its order"
                self._break_rule("kernel_did_no_work", message)

    def _break_rule(self, rule: str, observation: str) -> None:
        if rule not in self._relaxed:
            raise rule_broken(rule, observation)

    def _check_rounded(self, outputs: list[torch.Tensor], expected: Expected) -> None:
        for number, (got, exact) in enumerate(zip(outputs, expected.outputs, strict=True)):
            tolerance = TOLERANCES.get(got.dtype)
            if tolerance is not None and not is_within(got, exact, tolerance * ROUNDED_DOTS_FACTOR):
                message = (
                    f"output {number} is right only if products of float32 are exact; a device rounds them to TF32 by "
                    "default: give tl.dot input_precision='ieee', or make the computation less sensitive"
                )
                raise FaultDetected(Stage.ANSWERED, Fault.OUTPUT_MISMATCH, message, trial=self.num_answered + 1)

    def begin_end(self) -> None:
        """Have the player ended, since no trial follows; `close` waits for that. Raises `ZygoteLost`."""
        self._player.begin_end()

    def leave(self) -> None:
        """Do not wait for the player's end, since no other is forked. Raises `ZygoteLost`."""
        self._player.leave()

    def close(self) -> None:
        """End the player."""
        self._player.end_and_close()


def _split(outputs: list[torch.Tensor], num_remains: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The answer, and what is compared besides."""
    end = len(outputs) - num_remains
    return outputs[:end], outputs[end:]
