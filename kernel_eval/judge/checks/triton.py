"""The check of a Triton candidate: its source, its records, its trials, and the build for the target.

The candidate's Python runs in recorders only, where no kernel runs. What a record holds is played by a process that
holds nothing else of the candidate (`played_trials.py`): without a GPU its IR, which another process compiles for the
target meanwhile (`target_build.py`); on a GPU the machine code that others made of that IR (`device_build.py`), which
is timed there, too. What was tried is what is proven is what is built.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import KernelIr, Recorded
from weir.kernel_eval.ipc.tensor_arena import tensors_among
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks.answer_spread import MIN_DRAWS, AnswerSpread, check_told
from weir.kernel_eval.judge.checks.device_build import DeviceBuild
from weir.kernel_eval.judge.checks.outcome import EVALUATION_ERRORS, CheckOutcome, EvaluationError, outcome_of
from weir.kernel_eval.judge.checks.played_trials import Kernels, PlayedTrials
from weir.kernel_eval.judge.checks.proof import second_opinion
from weir.kernel_eval.judge.checks.recording import Recording, SecondRecording, digest, form_of, stand_ins
from weir.kernel_eval.judge.checks.reference_operators import hybrid_details, only_moves
from weir.kernel_eval.judge.checks.speedup import SpeedCheck
from weir.kernel_eval.judge.checks.target_build import PER_CONFIGURATION, TargetBuild
from weir.kernel_eval.judge.checks.varied_parameters import VariedParameters
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.judge.source.configurations import first_way, other_ways
from weir.kernel_eval.judge.source.recompiling import recompiled
from weir.kernel_eval.judge.state.further_calls import further_calls, told_apart
from weir.kernel_eval.judge.state.questions import Question, Questions, Subject, draw, variants_of
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.device_mapping import moved
from weir.kernel_eval.tasks.errors import InvalidReference
from weir.kernel_eval.tasks.input_variants import Draw, Variant
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.timing import sampling
from weir.kernel_eval.timing.roofline import Speed

_MORE_DRAWS = 12  # where the answers of all trials were the same, which happens to maxima of integers
_SPREAD = (Draw.DECLARED, Draw.MIXED, Draw.WIDE)
_ROOM = 8  # times the size of a task's inputs
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
        before: tuple[KernelIr, ...] | None = None
        for _ in range(_MAX_ATTEMPTS):
            attempt = _Attempt(self._job, leases, reference, self._deadline, skipped_configs)
            ended_by = attempt.run()
            details |= attempt.details
            kernel = _refused_configuration(tree, ended_by) if self._job.limits.gpu is None else None
            if kernel is None or attempt.irs == before:
                break
            skipped_configs[kernel] = skipped_configs.get(kernel, 0) + 1
            before = attempt.irs
        if ended_by is None and self._job.recompiles:
            try:
                details |= recompiled(on_host(self._job), leases.recorder, self._deadline, tree, attempt.records)
            except EVALUATION_ERRORS as error:
                ended_by = error
        return outcome_of(ended_by, trials=attempt.num_answered, speed=attempt.speed, details=details)


class _Attempt:
    """The trials of a candidate with one choice of configurations."""

    def __init__(
        self,
        job: Job,
        leases: Leases,
        reference: Reference,
        deadline: Deadline,
        skipped_configs: Mapping[str, int],
    ) -> None:
        self._job = job
        self._host = on_host(job)  # for processes that use no GPU
        self._limits = self._host.limits
        self._leases = leases
        self._reference = reference
        self._deadline = deadline
        self._skipped_configs = skipped_configs
        self._relaxed = frozenset(job.relaxed_rules)
        self._closing = contextlib.ExitStack()
        self._builds: list[TargetBuild] = []
        self._device: DeviceBuild | None = None
        if job.limits.gpu is not None:
            self._device = DeviceBuild(leases, self._limits, deadline, frozenset(job.relaxed_rules))
        self._of_form: dict[Any, list[Recorded]] = {}
        self._own_form: Any = None  # of the task's own inputs
        self._second: SecondRecording | None = None
        self._spread = AnswerSpread()
        self._ways: list[Recorded] = []  # the first call with other configurations of autotuned kernels
        self._way_of: tuple[Subject, Question] | None = None  # whom and what these are tried with
        self._far: Subject | None = None  # with parameters beyond the bounds that the task sets
        self.irs: tuple[KernelIr, ...] = ()
        self.speed: Speed | None = None
        self.records: list[Recorded] = []
        self.num_answered = 0
        self.details: dict[str, Any] = {}

    def run(self) -> EvaluationError | None:
        """Run everything. Returns the error that ended it, None for a correct candidate."""
        try:
            with self._closing:
                self._judge()
        except EVALUATION_ERRORS as error:
            return error
        return None

    def _judge(self) -> None:
        if self._device is not None:
            self._host = _with_room(self._host, self._reference)
        recording = Recording(
            self._host,
            self._leases,
            self._deadline,
            self._relaxed,
            self._skipped_configs,
            all_configs=self._device is not None,
        )
        trials = PlayedTrials(self._job, self._leases, self._deadline, self._reference)
        self._closing.callback(trials.close)
        try:
            subjects = self._record_and_try(recording, trials)
        except FaultDetected as error:
            if error.stage is Stage.ANSWERED:  # a wrong answer is no excuse, while other faults come first
                recording.check_left_behind()
            raise
        recording.check_left_behind()
        if self._second is not None:
            self._second.compare(self._first_irs)
        self.details["compile"] = self._compile_report(self._chosen(trials))
        self._check_spread(subjects)
        check_told(trials.told, self._spread.num_outputs)
        if self._device is not None:
            self._finish_on_gpu(trials, subjects[-1])
        for left in (trials, self._second, *self._builds):  # no attempt follows one that ends here
            if left is not None:
                left.leave()

    def _finish_on_gpu(self, trials: PlayedTrials, own: Subject) -> None:
        """Time what was tried, and ask a CPU for its opinion, if the job asks for them. Raises as `_judge`.

        That is the last record of a call with the task's own form: those after the first were tried on other draws.
        """
        job = self._job
        recorded = self._of_form[self._own_form][-1]
        if self._second is not None:
            self._second.end()
        if job.num_perf_trials:
            number = self.records.index(recorded)
            check = SpeedCheck(job, self._reference, own.model, own.state, trials.player, number)
            self.speed = check.run(len(recorded.trace.steps))
        if job.cross_checks:
            lease = self._leases.recorder
            self.details["cross_check"] = second_opinion(job, lease, self._deadline, self._reference, own, recorded)

    def _chosen(self, trials: PlayedTrials) -> list[KernelIr]:
        """The configurations of autotuned kernels that a GPU was the fastest with."""
        chosen: list[KernelIr] = []
        for number, numbers in trials.chosen.items():
            irs = self.records[number].irs
            chosen += [irs[at] for at in numbers if 0 <= at < len(irs) and irs[at] not in chosen]
        return chosen

    def _record_and_try(self, recording: Recording, trials: PlayedTrials) -> list[Subject]:
        """All trials, and the end of the recorder. Returns what was tried; raises as `_judge`."""
        job, reference = self._job, self._reference
        try:
            trials.prepare()
            init_arguments = reference.init_arguments(derive_seed(job.secret, "init"))
            model = reference.build(init_arguments, derive_seed(job.secret, "weights"))
            recording.construct(moved(init_arguments, "cpu"))
            subjects = self._subjects(model, recording, reference.fixed_parameters(model, init_arguments))
            self._try_all(recording, trials, subjects, init_arguments)
            return subjects
        except FaultDetected as error:
            self._explain(error)
            raise
        finally:
            self.num_answered = trials.num_answered
            if trials.rounds_dots:
                self.details["tf32_dots"] = True
            try:
                recording.end()
            finally:
                self.details |= recording.details

    def _subjects(self, model: Any, recording: Recording, fixed: frozenset[str]) -> list[Subject]:
        """The model and the candidate's state, with the parameters of trials first, then as they were constructed."""
        own = Subject(model, self._placed(recording.state), named=recording.named)
        if "varied_parameters" in self._relaxed:
            return [own]
        varied = VariedParameters(model, derive_seed(self._job.secret, "parameters"), fixed)
        if not varied.names:
            return [own]
        state, lacking = varied.in_state(recording.state, recording.named)
        self.details["varied_parameters"] = varied.names
        subject = Subject(varied.model, self._placed(state), tuple(lacking), recording.named)
        far = VariedParameters(model, derive_seed(self._job.secret, "far"), fixed, far=True)
        if self._reference.branches.decides_otherwise(far.model, varied.model):
            state, lacking = far.in_state(recording.state, recording.named)
            self._far = Subject(far.model, self._placed(state), tuple(lacking), recording.named)
        return [subject, own]

    def _placed(self, state: list[torch.Tensor]) -> list[torch.Tensor]:
        """A candidate's state in the memory of the evaluation's device."""
        return state if self._device is None else [piece.cuda() for piece in state]

    def _try_all(
        self, recording: Recording, trials: PlayedTrials, subjects: list[Subject], init_arguments: list[Any]
    ) -> None:
        job = self._job
        num_timed = 0 if self._device is not None else min(job.num_perf_trials, self._limits.perf_trials)
        num_trials = max(MIN_DRAWS, job.num_correct_trials) + num_timed
        draws: dict[str, int] = self.details.setdefault("inputs", {})  # few kinds: it is tried less hard
        variants = variants_of(self._reference, subjects[-1].model, job.secret, num_trials, self._relaxed)
        questions = Questions(self._reference, job.secret, variants, subjects, self._far)
        for trial in range(len(variants)):
            drawn = self._try_one(recording, trials, questions, init_arguments, trial)
            draws[drawn.draw.value] = draws.get(drawn.draw.value, 0) + 1
        if self._device is None:
            self._try_ways(trials)
            self._try_further(trials, questions, subjects[-1])
            trials.begin_end()
        if self._reference.draws_on_host:
            self.details["drawn_on_host"] = True
        if num_timed:
            self.details["timing"] = {"timing_kind": "interpreter", **sampling.summarize(trials.play_us).in_ms()}

    def _try_one(
        self,
        recording: Recording,
        trials: PlayedTrials,
        questions: Questions,
        init_arguments: list[Any],
        trial: int,
    ) -> Variant:
        """One trial, whose tensors are freed when it returns."""
        reference = self._reference
        subject, question, drawn = questions.take(trial)
        inputs, expected = question
        recorded = self._recorded(recording, subject, inputs, trial)
        if recorded not in self.records:
            to_code = self._build(recorded)  # first: so that "does not compile" goes before "cannot be played"
            moves = only_moves(reference, subject.model, inputs)
            work = trials.load(recorded, subject, question, to_code, only_moves=moves)
            self._note(hybrid_details(work, reference.fresh(subject.model), inputs))
            self.records.append(recorded)
        if trial == 0 and "ir_differs" not in self._relaxed:
            self._start_second(init_arguments, inputs)
        ahead = functools.partial(questions.draw_ahead, trial + 1)
        trials.run(
            self.records.index(recorded),
            subject,
            question,
            recording.begin_end if questions.is_last(trial) else ahead,
            is_own=trial == 0 and self._device is None,  # a device's own functions are less exact
        )
        if self._ways and trial and form_of(inputs) == self._own_form:
            self._way_of = subject, question
        for build in self._builds[:1]:
            build.advance()
        self._spread.note(form_of(inputs), expected.outputs)
        return drawn

    def _recorded(self, recording: Recording, subject: Subject, inputs: list[Any], trial: int) -> Recorded:
        """The record of a trial's call. For a GPU, whose inputs may be large, two calls of each form are recorded."""
        form = form_of(inputs)
        self._own_form = form if trial == 0 else self._own_form
        known = self._of_form.setdefault(form, [])
        if self._device is not None and len(known) > 1:
            return known[-1]
        seed = derive_seed(self._job.secret, "stand-ins", trial)
        learn = functools.partial(self._learn, subject.model, inputs)
        is_sampled = form == self._own_form and self._device is None
        sample = derive_seed(self._job.secret, "configurations") if is_sampled else None
        recorded = recording.record(stand_ins(inputs, self._reference, seed), learn, sample)
        if sample is not None:
            ways, recorded = other_ways(recorded), first_way(recorded)
            self._ways += [way for way in ways if way not in self._ways]
        known.append(recorded)
        return known[-1]

    def _try_ways(self, trials: PlayedTrials) -> None:
        """Play the call with other configurations of autotuned kernels, and count them. Raises `FaultDetected`."""
        num_played = 0 if self._way_of is None else trials.try_ways(self._ways, *self._way_of)
        known, failed = 1 + len(self._ways), self.records[0].num_failed
        if known > 1 or failed:
            self.details["configurations"] = {"known": known, "played": 1 + num_played, "failed": failed}

    def _try_further(self, trials: PlayedTrials, questions: Questions, own: Subject) -> None:
        """Play calls of the first one's form with values that neither constructors nor draws have.

        Those after the first may be others, by what a model keeps or counts: they stand what the first one stands, the
        comparison on the task's own inputs too. Raises `FaultDetected`.
        """
        constant, relaxed = self.details.get("varied_parameters", ()), self._relaxed
        if "varied_parameters" not in relaxed:
            self.details["wide_parameters"] = False
        if self._second is not None:
            seed = derive_seed(self._job.secret, "other weights")
            own = told_apart(own, self.records, functools.partial(self._second.named_with, seed))
        alike = sorted({self.records.index(recorded) for recorded in self._of_form[self._own_form]})
        for number in alike:
            if number:
                trials.run(number, *questions.take(0)[:2], counts=False, is_own=True)
            calls = further_calls(self._reference, own, self.records[number].trace, constant, self._job.secret, relaxed)
            for name, subject, question in calls:
                if form_of(question.inputs) == self._own_form:
                    self.details[name] = True
                    trials.run(number, subject, question, counts=False)

    def _learn(self, model: Any, inputs: list[Any]) -> None:
        """Find out once per task what the steps ahead ask of it, while a recorder works."""
        only_moves(self._reference, model, inputs)
        if "varied_inputs" not in self._relaxed:
            self._reference.learn(model)

    def _note(self, hybrid: dict[str, Any]) -> None:
        """Keep what torch did in the record in which it did most."""
        if hybrid and hybrid["kernel_share"] <= self.details.get("kernel_share", 1.0):
            self.details |= hybrid

    def _start_second(self, init_arguments: list[Any], inputs: list[Any]) -> None:
        """Have the first call recorded again, beside the trials."""
        self._first_irs = self.irs
        contents = stand_ins(inputs, self._reference, derive_seed(self._job.secret, "stand-ins", "second"))
        second = SecondRecording(
            self._host,
            self._leases,
            self._deadline,
            self._skipped_configs,
            moved(init_arguments, "cpu"),
            contents,
            all_configs=self._device is not None,
        )
        self._closing.callback(second.close)
        self._second = second

    def _build(self, recorded: Recorded) -> Callable[[], Kernels] | None:
        """Compile for the target what was not compiled yet, beside the trials; what does it before them, on a GPU."""
        new = _new_irs(self.irs, recorded.irs)
        self.irs += new
        if self._device is not None:
            return functools.partial(self._device.kernels, recorded.trace, recorded.irs)
        if new:
            if self._builds:
                self._builds[-1].make_room()
            build = TargetBuild(self._leases, self._limits, self._deadline, new, assembles=not self._builds)
            self._builds.append(build)
            self._closing.callback(build.close)
        return None

    def _compile_report(self, chosen: Sequence[KernelIr] = ()) -> dict[str, Any]:
        """The kernels of all records. Raises `FaultDetected` if one cannot be built for the target.

        `chosen`: those of autotuned kernels that a GPU took.
        """
        if self._device is not None:
            return self._device.report(chosen) | {"ir": digest(self.irs)}
        reports = [build.finish(self._relaxed) for build in self._builds]
        kernels = [kernel for report in reports for kernel in report["kernels"]]
        seconds = round(sum(report["seconds"] for report in reports), 4)
        return {"target": self._limits.target, "kernels": kernels, "seconds": seconds, "ir": digest(self.irs)}

    def _explain(self, error: FaultDetected) -> None:
        """For a kernel that cannot be played: whether it compiles at all. Raises `FaultDetected` with the reason."""
        if error.fault is not Fault.UNSUPPORTED or self._device is not None:
            return
        self._compile_report()
        fault = Fault.NOT_RUN if self._job.reward_compiled else Fault.UNSUPPORTED
        message = (
            f"it compiles for {self._limits.target}; the interpreter of Triton's IR cannot run it: {error.message}"
        )
        raise FaultDetected(Stage.LOADED, fault, message, phase="call", correctness="unknown") from None

    def _check_spread(self, subjects: list[Subject]) -> None:
        """Raises `InvalidReference` if no draw of the inputs changed an answer, nor do further ones."""
        if "varied_inputs" in self._relaxed:
            return
        constant = self._spread.constant_outputs()
        for number in range(_MORE_DRAWS):
            if not constant:
                return
            seed = derive_seed(self._job.secret, "spread", number)
            variant = Variant(_SPREAD[number % len(_SPREAD)])
            _, (inputs, expected), _ = draw(self._reference, subjects, seed, variant)
            self._spread.note(form_of(inputs), expected.outputs)
            constant = self._spread.constant_outputs()
        if constant:
            raise InvalidReference(
                f"output {constant[0]} of the task is the same for all inputs that were drawn, so that nothing was "
                "shown: whatever stores that answer would be right"
            )


def on_host(job: Job) -> Job:
    """The job as processes have it that use no GPU."""
    return msgspec.structs.replace(job, limits=msgspec.structs.replace(job.limits, gpu=None))


def _with_room(job: Job, reference: Reference) -> Job:
    """The job with memory for recorders of calls whose tensors are as large as those of tasks for GPUs."""
    size = sum(tensor.nbytes for tensor in tensors_among(reference.inputs(0)))
    limits = msgspec.structs.replace(job.limits, memory_bytes=job.limits.memory_bytes + _ROOM * size)
    return msgspec.structs.replace(job, limits=limits)


def _new_irs(known: tuple[KernelIr, ...], more: tuple[KernelIr, ...]) -> tuple[KernelIr, ...]:
    """Those of `more` that are not known."""
    return tuple(ir for ir in more if ir not in known)


def _refused_configuration(tree: ast.Module, error: EvaluationError | None) -> str | None:
    """The autotuned kernel whose chosen configuration the target refuses."""
    if not isinstance(error, FaultDetected) or error.fault not in PER_CONFIGURATION:
        return None
    kernel = str(error.details.get("kernel", "")).rpartition(":")[0]
    return kernel if kernel and source_policy.mentions(tree, "autotune") else None
