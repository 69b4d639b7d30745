"""Checks whether a task can be judged at all, by running its reference and examining the answers.

Invariant: the result names the first `Problem`. The answers of a task without one depend on its inputs, are the same
when a call is repeated, and are told from zeros: they are not tiny, nor does a rounding decide them. Runs only in a
judge, without a candidate.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import torch

from weir.kernel_eval.ipc.job import Job, Judgement
from weir.kernel_eval.judge.checks.answer_spread import is_another
from weir.kernel_eval.judge.checks.expected_answers import told_by
from weir.kernel_eval.judge.checks.tolerance import compare
from weir.kernel_eval.protocol import Fault, Problem
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed

TINY = 1e-4  # KernelBench's absolute tolerance: its own checker accepts zeros for smaller answers
_NUM_INPUTS = 3  # at most
_PIECE = 1 << 20  # elements that are examined at a time


class Unjudgeable(Exception):
    """A task cannot be judged, for this reason."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem
        self.message = message


def check_task(job: Job) -> Judgement:
    """A judgement on the reference alone, with the problem and the time of a call in `details`. Raises only bugs."""
    started, details = time.monotonic(), dict[str, Any]()
    problem, message = None, ""
    try:
        _check(job, details)
    except Unjudgeable as error:
        problem, message = error.problem, error.message
    except InvalidReference as error:
        problem, message = Problem.DOES_NOT_RUN, str(error)
    except UnsupportedReference as error:
        problem, message = Problem.UNSUPPORTED, str(error)
    if problem is not None:
        details["problem"] = problem.value
    return Judgement(
        stage=Stage.NOTHING,
        fault=None if problem is None else Fault.INVALID_REFERENCE,
        message=message,
        seconds=time.monotonic() - started,
        details=details,
    )


def _check(job: Job, details: dict[str, Any]) -> None:
    on_gpu = job.limits.gpu is not None
    reference = Reference(job.reference_src, job.limits.reference_timeout_s, on_gpu=on_gpu)
    arguments = reference.init_arguments(derive_seed(job.secret, "init"))
    model = reference.build(arguments, derive_seed(job.secret, "weights"))
    answers = _Answers()
    told: set[int] = set()
    for number in range(_NUM_INPUTS):
        inputs = reference.inputs(derive_seed(job.secret, "inputs", number))
        if not any(isinstance(value, torch.Tensor) for value in inputs):
            raise Unjudgeable(Problem.NO_INPUTS, "get_inputs() gives no tensor: there is nothing to compute from")
        wall, processor = time.monotonic(), time.process_time()
        expected = reference.expected(model, inputs)
        outputs = expected.outputs
        call_s = time.monotonic() - wall
        if call_s > job.limits.task_call_s and not on_gpu:  # neighbours may have had most of that time
            call_s = time.process_time() - processor
        details["call_s"] = round(min(call_s, details.get("call_s", float("inf"))), 6)
        if number == 0:
            _check_repeats(outputs, reference.expected(model, inputs).outputs)
        if len(told) < len(outputs) and details["call_s"] <= job.limits.task_call_s:
            told |= told_by(reference, model, inputs, expected)
        del inputs, expected
        answers.note(outputs)
        if len(told) == len(outputs) and answers.are_good:
            break  # further draws could only show the same
    if details["call_s"] > job.limits.task_call_s:
        raise Unjudgeable(
            Problem.TOO_SLOW,
            f"one call of Model takes {details['call_s']:.2f} s here, more than kernel_eval.task_call_s = "
            f"{job.limits.task_call_s:g}: make its sizes smaller",
        )
    details["outputs"] = [[str(output.dtype).removeprefix("torch."), *output.shape] for output in answers.first]
    answers.check()
    _check_told(told, len(answers.first))


def _check_told(told: set[int], num_outputs: int) -> None:
    for number in range(num_outputs):
        if number not in told:
            raise Unjudgeable(
                Problem.AMPLIFIES_ROUNDING,
                f"a rounding of the inputs changes output {number} by about as much as its values are: zeros would "
                "pass for it; use fewer steps, or a function that is less sensitive",
            )


def _check_repeats(first: list[torch.Tensor], again: list[torch.Tensor]) -> None:
    same = len(first) == len(again) and all(
        a.shape == b.shape and a.dtype == b.dtype and (torch.equal(a, b) or compare(a, b) is None)
        for a, b in zip(first, again, strict=True)
    )
    if not same:
        raise Unjudgeable(
            Problem.NONDETERMINISTIC,
            "Model answers differently when a call is repeated: remove dropout and random numbers",
        )


@dataclasses.dataclass
class _Seen:
    """What is known of one output, over all inputs. `largest`: the largest finite magnitude, -1 without any."""

    num_elements: int = 0
    num_finite: int = 0
    largest: float = -1.0
    differs: bool = False


class _Answers:
    """The outputs for several inputs, of which only the first are kept: tasks may fill most of the memory."""

    def __init__(self) -> None:
        self.first: list[torch.Tensor] = []
        self._seen: list[_Seen] = []

    def note(self, outputs: list[torch.Tensor]) -> None:
        """Take the outputs for other inputs."""
        if not self._seen:
            self.first, self._seen = outputs, [_Seen() for _ in outputs]
        for first, seen, output in zip(self.first, self._seen, outputs, strict=False):
            seen.differs = seen.differs or (output is not first and is_another(output, first))
            for piece in torch.split(output.reshape(-1), _PIECE):
                num_finite, largest = _finite(piece)
                seen.num_elements += piece.numel()
                seen.num_finite += num_finite
                seen.largest = max(seen.largest, largest)

    @property
    def are_good(self) -> bool:
        """Whether each output shows something, and another one for other inputs."""
        try:
            self.check()
        except Unjudgeable:
            return False
        return True

    def check(self) -> None:
        """Raises `Unjudgeable` for the first output that shows nothing."""
        for number, (output, seen) in enumerate(zip(self.first, self._seen, strict=True)):
            _check_output(number, output, seen)


def _check_output(number: int, output: torch.Tensor, seen: _Seen) -> None:
    if seen.num_elements == 0:
        raise Unjudgeable(Problem.EMPTY_OUTPUT, f"output {number} has no elements")
    if seen.num_finite * 2 < seen.num_elements:
        raise Unjudgeable(Problem.NON_FINITE, f"most of output {number} is NaN or infinite")
    if seen.largest == 0:
        raise Unjudgeable(Problem.ALL_ZERO, f"output {number} is zero everywhere: an empty kernel would be right")
    if output.is_floating_point() and seen.largest < TINY:
        raise Unjudgeable(
            Problem.TINY_OUTPUT, f"output {number} is at most {seen.largest:.1e}, below {TINY:g}: zeros pass for it"
        )
    if not seen.differs:
        raise Unjudgeable(
            Problem.CONSTANT_OUTPUT, f"output {number} is the same whatever the inputs are: it can be hard-coded"
        )


def _finite(answer: torch.Tensor) -> tuple[int, float]:
    """How many elements are finite, and their largest magnitude; -1 without any."""
    numbers = answer.to(torch.uint8) if answer.dtype is torch.bool else answer
    magnitudes = numbers.abs()
    largest = float(magnitudes.max()) if magnitudes.numel() else -1.0
    if math.isfinite(largest):
        return magnitudes.numel(), largest
    magnitudes = magnitudes[torch.isfinite(magnitudes)]
    return magnitudes.numel(), float(magnitudes.max()) if magnitudes.numel() else -1.0
