"""Checks whether a task can be judged at all, by running its reference and examining the answers.

Invariant: the result names the first `Problem`. The answers of a task without one depend on its inputs, are the same
when a call is repeated, and are large enough to be distinguished from zeros. Runs only in a judge, without a candidate.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from weir.kernel_eval.ipc.job import Job, Judgement
from weir.kernel_eval.judge.checks.tolerance import compare
from weir.kernel_eval.protocol import Fault, Problem
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import InvalidReference, Reference, UnsupportedReference
from weir.kernel_eval.tasks.seeds import derive_seed

TINY = 1e-4  # KernelBench's absolute tolerance: its own checker accepts zeros for smaller answers
_NUM_INPUTS = 3


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
    reference = Reference(job.reference_src, job.limits.reference_timeout_s, on_gpu=job.limits.gpu is not None)
    arguments = reference.init_arguments(derive_seed(job.secret, "init"))
    model = reference.build(arguments, derive_seed(job.secret, "weights"))
    answers = []
    for number in range(_NUM_INPUTS):
        inputs = reference.inputs(derive_seed(job.secret, "inputs", number))
        if not any(isinstance(value, torch.Tensor) for value in inputs):
            raise Unjudgeable(Problem.NO_INPUTS, "get_inputs() gives no tensor: there is nothing to compute from")
        started = time.monotonic()
        first = reference.expected(model, inputs).outputs
        details["call_s"] = round(min(time.monotonic() - started, details.get("call_s", float("inf"))), 6)
        _check_repeats(first, reference.expected(model, inputs).outputs)
        answers.append(first)
    if details["call_s"] > job.limits.task_call_s:
        raise Unjudgeable(
            Problem.TOO_SLOW,
            f"one call of Model takes {details['call_s']:.2f} s here, more than kernel_eval.task_call_s = "
            f"{job.limits.task_call_s:g}: make its sizes smaller",
        )
    details["outputs"] = [[str(output.dtype).removeprefix("torch."), *output.shape] for output in answers[0]]
    for number in range(len(answers[0])):
        _check_output(number, [outputs[number] for outputs in answers if number < len(outputs)])


def _check_repeats(first: list[torch.Tensor], again: list[torch.Tensor]) -> None:
    same = len(first) == len(again) and all(
        a.shape == b.shape and a.dtype == b.dtype and compare(a, b) is None for a, b in zip(first, again, strict=True)
    )
    if not same:
        raise Unjudgeable(
            Problem.NONDETERMINISTIC,
            "Model answers differently when a call is repeated: remove dropout and random numbers",
        )


def _check_output(number: int, answers: list[torch.Tensor]) -> None:
    """Check one output, given its values for several inputs. Raises `Unjudgeable`."""
    finite = [_magnitudes(answer) for answer in answers]
    num_elements, num_finite = sum(answer.numel() for answer in answers), sum(part.numel() for part in finite)
    if num_elements == 0:
        raise Unjudgeable(Problem.EMPTY_OUTPUT, f"output {number} has no elements")
    if num_finite * 2 < num_elements:
        raise Unjudgeable(Problem.NON_FINITE, f"most of output {number} is NaN or infinite")
    largest = max(float(part.max()) for part in finite if part.numel())
    if largest == 0:
        raise Unjudgeable(Problem.ALL_ZERO, f"output {number} is zero everywhere: an empty kernel would be right")
    if answers[0].is_floating_point() and largest < TINY:
        raise Unjudgeable(
            Problem.TINY_OUTPUT, f"output {number} is at most {largest:.1e}, below {TINY:g}: zeros pass for it"
        )
    if all(torch.equal(answer, answers[0]) for answer in answers[1:]):
        raise Unjudgeable(
            Problem.CONSTANT_OUTPUT, f"output {number} is the same whatever the inputs are: it can be hard-coded"
        )


def _magnitudes(answer: torch.Tensor) -> torch.Tensor:
    """The magnitudes of the finite elements; shape (num_finite,)."""
    numbers = answer.to(torch.uint8) if answer.dtype is torch.bool else answer
    return numbers[torch.isfinite(numbers)].abs()
