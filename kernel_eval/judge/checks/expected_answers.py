"""Compares a candidate's answer with the reference's: its form, then its values, in the task's precision or float64."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from weir.kernel_eval.ipc.messages import Answered, Recorded
from weir.kernel_eval.ipc.tensor_arena import span_of, tensors_among
from weir.kernel_eval.ipc.trace import Opaque, Place
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks.slices import pieces_of
from weir.kernel_eval.judge.checks.tolerance import Difference, Tolerance, can_tell, compare, near_tolerance, usual
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.answers import Expected, is_integer
from weir.kernel_eval.tasks.effects.side_effects import SideEffects
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.rows import MANY, every_nth, rows, thinned

_PIECE = 1 << 20  # elements that are looked at together
_MOST_NEAR = 4  # one of so many elements may be what one rounding gives,
_MOST_BETWEEN, _MOST_WHOLE = 1000, 8  # or lie between what some give, or one of so many whole numbers
_LARGEST = 1 << 24  # elements of an answer that is looked at
_OF_OPERATORS = 4.0, 8.0  # halves by which what operators compute is off, in turns
# Each crosses a border that is near in half of all cases; neighbours of one another would move elements alike.
_PHASES = (1, 7, 31, 127, 521, 2053, 8209, 32771, 131_101, 524_309, 3, 13, 61, 251, 1021, 4093)
_FEW_PHASES, _MANY = 6, 16  # phases, and wrong elements,
_CROSSED = 16  # of which one of so many is right by then
_HALF_BYTES = 2  # of an element
_LEAST_STORED = 0.1  # of what is not zero: a triangular or padded answer has elements that no kernel needs to store
_LEAST_ROWS = 16  # in which no number occurs twice by chance
_NOT_FAR = 16.0  # times as far off as the reference's own errors excuse
_LEFT_OUT = (
    ": within the tolerance, but further off on the task's own inputs than float32 gets; do not leave out a term, "
    "however small, nor approximate a function"
)


def difference(
    reference: Reference,
    model: Any,
    inputs: list[Any],
    expected: Expected,
    outputs: list[torch.Tensor],
    told: set[int] | None = None,
) -> Difference | None:
    """The first error of an answer; None if it agrees with the reference in the task's precision or in float64.

    A slice of an answer is compared by its own scale only where the reference's own error is known. `told` takes the
    outputs, by number, for which this draw told a right answer from zeros: of an answer that only the reference's own
    error excuses, that error must be small enough.
    """
    told = set() if told is None else told
    pairs = list(zip(outputs, expected.outputs, strict=True))
    may_overflow = not reference.works_by_value(model)
    found = [compare(got, wanted, may_overflow=may_overflow) for got, wanted in pairs]
    told.update(number for number, wrong in enumerate(found) if wrong is None)
    first = _first(found)
    if first is None:
        return None
    known = _own_errors(reference, model, inputs, expected)
    if known is None:
        told.update(range(len(outputs)))
        return _first(compare(got, wanted, by_slices=False, may_overflow=may_overflow) for got, wanted in pairs)
    found_beyond, excusing = _beyond_own_errors(reference, model, inputs, expected, known, dict(enumerate(outputs)), {})
    told.update(number for number, (exact, own) in enumerate(excusing) if can_tell(exact, own))
    if found_beyond is None:
        return None
    return None if _are_undetermined(reference, model, inputs, expected, outputs, known) else first


def left_out(
    reference: Reference, model: Any, inputs: list[Any], expected: Expected, outputs: list[torch.Tensor]
) -> Difference | None:
    """What shows that a right answer to the task's own draw lacks a term below the tolerance; None if nothing does.

    The answer has to be as near as honest kernels are to the reference's, in the task's precision or in float64.
    """
    by_value = reference.works_by_value(model)
    tolerances = [near_tolerance(output.dtype, by_value=by_value) for output in outputs]
    asked = [number for number, tolerance in enumerate(tolerances) if tolerance is not None]
    far = [n for n in asked if compare(outputs[n], expected.outputs[n], tolerance=tolerances[n]) is not None]
    known = _own_errors(reference, model, inputs, expected) if far else None
    if known is None:
        return None
    # what the task itself makes in half precision is not exact in float64 either
    far = [n for n in far if outputs[n].element_size() > _HALF_BYTES or known[n][0].element_size() > _HALF_BYTES]
    answers = {number: outputs[number] for number in far}
    found, _ = _beyond_own_errors(reference, model, inputs, expected, known, answers, dict(enumerate(tolerances)))
    if found is not None and _are_undetermined(reference, model, inputs, expected, outputs, known, tolerances):
        return None
    return found and found._replace(message=found.message + _LEFT_OUT)


def _beyond_own_errors(
    reference: Reference,
    model: Any,
    inputs: list[Any],
    expected: Expected,
    known: list[tuple[torch.Tensor, torch.Tensor]],
    answers: dict[int, torch.Tensor],
    tolerances: dict[int, Tolerance | None],
) -> tuple[Difference | None, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The first error of some outputs, by number, that the reference's own errors do not excuse; None if they do.

    With it the errors that excuse them, in the form of `known`; that itself where none do.

    `known`: by one rounding of the inputs. Where an answer is not far beyond, or few elements are, more are looked at,
    of which any may happen to change an element by little; of a tangent, a softplus or a variance, those that other
    formulas make.
    """

    may_overflow = not reference.works_by_value(model)

    def beyond(known: list[tuple[torch.Tensor, torch.Tensor]], times: float) -> Difference | None:
        pairs = ((got, number, *known[number]) for number, got in answers.items())
        return _first(
            compare(got, one, own * times, tolerance=tolerances.get(n), may_overflow=may_overflow)
            for got, n, one, own in pairs
        )

    found = beyond(known, 1.0)
    look = functools.partial(_own_errors, reference, model, inputs, expected)
    further: list[Callable[[], list[tuple[torch.Tensor, torch.Tensor]] | None]] = []
    if found is not None and beyond(known, _NOT_FAR) is None:
        further.append(functools.partial(look, _PHASES))
    elif found is not None and _few_wrong(answers, known, tolerances):  # a root of nearly zero is zero half of the time
        further.append(functools.partial(look, _PHASES[:_FEW_PHASES]))
    if found is not None and reference.watched(model).has_formulas:
        further.append(functools.partial(look, _PHASES[:_FEW_PHASES], formulas=True))
    for errors in further:
        more = errors()
        if more is not None and beyond(more, 1.0) is None:
            return None, more
    return found, known


def _few_wrong(
    answers: dict[int, torch.Tensor],
    known: list[tuple[torch.Tensor, torch.Tensor]],
    tolerances: dict[int, Tolerance | None],
) -> bool:
    """Whether of answers that are not large no more elements are wrong than roundings may excuse."""
    num_elements = sum(got.numel() for got in answers.values())
    if num_elements > _LARGEST:
        return False
    wrong = {number: torch.zeros(got.shape, dtype=torch.bool, device=got.device) for number, got in answers.items()}
    for number, got in answers.items():
        compare(got, *known[number], tolerance=tolerances.get(number), into=wrong[number])
    return _MOST_NEAR * sum(int(one.sum()) for one in wrong.values()) <= num_elements


def _are_undetermined(
    reference: Reference,
    model: Any,
    inputs: list[Any],
    expected: Expected,
    outputs: list[torch.Tensor],
    known: list[tuple[torch.Tensor, torch.Tensor]],
    tolerances: list[Tolerance | None] | None = None,
) -> bool:
    """Whether the elements that are wrong are no more than some, and roundings of the task's own give each of them.

    Of many values that are divided by a scale and rounded to whole numbers, some lie so near a half that a kernel which
    multiplies with the inverse gives the other number; a rank among scores of which rounding makes some equal is any
    of several, as is that of scores which underflow. Many wrong ones are not right. Few may lie between those that
    roundings give. `known`: as in `_beyond_own_errors`. `tolerances`: where they are not the usual ones. Raises
    `OutOfMemory`.
    """
    given = tolerances or [None] * len(outputs)
    of_outputs = [own or usual(output.dtype) for own, output in zip(given, outputs, strict=True)]
    wrong = [torch.zeros(got.shape, dtype=torch.bool, device=got.device) for got in outputs]
    for got, pair, tolerance, into in zip(outputs, known, of_outputs, wrong, strict=True):
        compare(got, *pair, tolerance=tolerance, into=into)
    num_wrong, num_elements = sum(int(one.sum()) for one in wrong), sum(one.numel() for one in wrong)
    if num_elements > _LARGEST:
        return False
    answers = [expected.outputs]
    for other in reference.with_other_ties(model, inputs):
        answers.append(other)
        for number, (got, one) in enumerate(zip(outputs, other, strict=True)):
            wrong[number] &= ~_is_near(got, one, of_outputs[number])
        if not any(bool(one.any()) for one in wrong):
            break
    if len(answers) > 1 and any(_repeats(got, known) for got, *known in zip(outputs, *answers, strict=True)):
        return False
    if not any(bool(one.any()) for one in wrong):
        return True
    if _MOST_NEAR * num_wrong > num_elements:
        return False
    may_lie_between = _are_few(wrong, outputs)
    ranges = [(wanted, wanted) for wanted in expected.outputs]
    look = functools.partial(reference.expected_float64, model, inputs, expected.outputs, alike=True)
    formulas = itertools.cycle((False, True) if reference.watched(model).has_formulas else (False,))
    runs = zip(_PHASES, itertools.cycle(_OF_OPERATORS), formulas, strict=False)
    for number_of_run, (phase, times, of_formulas) in enumerate(runs, 1):
        near = look(of_operators=times, phase=phase, formulas=of_formulas)  # of inputs as they are: `x - 0` is x
        if near is None:
            return False
        for number, (got, one) in enumerate(zip(outputs, near, strict=True)):
            wrong[number] &= ~_is_near(got, one, of_outputs[number])
            if may_lie_between and not got.is_complex():
                low, high = ranges[number] = torch.fmin(ranges[number][0], one), torch.fmax(ranges[number][1], one)
                wrong[number] &= ~((low <= got) & (got <= high))
        num_left = sum(int(one.sum()) for one in wrong)
        if not num_left:
            return True
        if number_of_run == _FEW_PHASES and num_wrong >= _MANY and _CROSSED * (num_wrong - num_left) < num_wrong:
            return False  # so few runs cross some of many borders, if they are near
    return False


def _repeats(output: torch.Tensor, known: list[torch.Tensor]) -> bool:
    """Whether rows hold a whole number twice, where no row of what is `known` does: the same place was chosen twice."""
    if not is_integer(output) or output.dim() < 2 or output.numel() < _LEAST_ROWS * output.shape[-1]:
        return False
    repeats = [bool((one.sort(-1).values.diff() == 0).any()) for one in (output, *known)]
    return repeats[0] and not any(repeats[1:])


def _are_few(wrong: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    """Whether few elements are wrong of all, or at least of those that are whole numbers."""
    num_elements = sum(one.numel() for one in wrong)
    whole = [one for one, output in zip(wrong, outputs, strict=True) if is_integer(output)]
    num_wrong, num_whole = (sum(int(one.sum()) for one in some) for some in (wrong, whole))
    are_few_whole = num_wrong == num_whole and _MOST_WHOLE * num_whole <= sum(one.numel() for one in whole)
    return are_few_whole or _MOST_BETWEEN * num_wrong <= num_elements


def _is_near(got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance | None) -> torch.Tensor:
    """Where an answer is within a tolerance of an element's own magnitude; its shape."""
    if tolerance is None:
        return got == expected.to(got.dtype)
    wide = torch.complex128 if got.is_complex() else torch.float64
    got, expected = got.to(wide), expected.to(wide)
    same = (got == expected) | (got.isnan() & expected.isnan())
    is_finite = torch.isfinite(got) & torch.isfinite(expected)
    return same | (is_finite & ((got - expected).abs() <= tolerance.relative * expected.abs() + tolerance.absolute))


def told_by(reference: Reference, model: Any, inputs: list[Any], expected: Expected) -> set[int]:
    """The outputs, by number, for which a draw tells a right answer from zeros. Of many rows, some are looked at."""
    if not any(output.is_floating_point() or output.is_complex() for output in expected.outputs):
        return set(range(len(expected.outputs)))
    inputs, rounded = _some_rows(reference, model, inputs, expected)
    precise = reference.expected_float64(model, inputs, rounded)
    if precise is None:
        return set(range(len(rounded)))
    near = reference.expected_float64(model, inputs, rounded, roundings=1.0) or precise
    told = set[int]()
    for number, answers in enumerate(zip(rounded, near, precise, strict=True)):
        own, other, exact = (thinned(answer) for answer in answers)
        if can_tell(exact, torch.maximum(_distance(own, exact), _distance(other, exact))):
            told.add(number)
    return told


def _some_rows(
    reference: Reference, model: Any, inputs: list[Any], expected: Expected
) -> tuple[list[Any], list[torch.Tensor]]:
    """Some rows of large inputs, and those of the answers if they follow from them; otherwise all."""
    whole = inputs, expected.outputs
    some = every_nth(inputs, expected.outputs)
    if some is None:
        return whole
    at, part = some
    among = [output[at] for output in expected.outputs]
    try:
        alone = reference.expected(model, part).outputs
    except (InvalidReference, UnsupportedReference):
        return whole
    same_form = [(one.shape, one.dtype) for one in alone] == [(one.shape, one.dtype) for one in among]
    follow = same_form and all(compare(one, two) is None for one, two in zip(alone, among, strict=True))
    return (part, among) if follow else whole


def _own_errors(
    reference: Reference,
    model: Any,
    inputs: list[Any],
    expected: Expected,
    phases: Sequence[int] = _PHASES[:1],
    *,
    formulas: bool = False,
) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """For each output its value in float64, and how far off the reference's own is, by a rounding of the inputs too.

    `phases`: of the roundings that are tried, of which any may happen to change an element by little. `formulas`: as in
    `RoundedOperators`. None if the model cannot run in float64.
    """
    known: list[tuple[torch.Tensor, torch.Tensor]] = []
    for at, part in _pieces(reference, model, inputs, expected):
        rounded = [output[at] for output in expected.outputs]
        precise = reference.expected_float64(model, part, rounded)
        if precise is None:
            return None
        if not known:
            known = [
                (one.new_empty(output.shape), torch.zeros(output.shape, device=output.device))
                for output, one in zip(expected.outputs, precise, strict=True)
            ]
        for (exact, own), one, two in zip(known, precise, rounded, strict=True):
            exact[at] = one
            own[at] = _distance(two, one)
        look = functools.partial(reference.expected_float64, model, part, rounded, roundings=1.0)
        for phase in phases:
            near = look(phase=phase, formulas=formulas) or precise
            for (exact, own), one in zip(known, near, strict=True):
                own[at] = torch.maximum(own[at], _distance(one, exact[at]))
    return known


def _pieces(reference: Reference, model: Any, inputs: list[Any], expected: Expected) -> list[tuple[Any, list[Any]]]:
    """The rows of the answers, each with the inputs that give them alone; of small or other answers all rows.

    What a model gives for some rows of its inputs is compared with those rows of what it gives for all of them.
    """
    whole: list[tuple[Any, list[Any]]] = [(..., inputs)]
    sizes = {output.shape[:1] for output in expected.outputs}
    num_elements = max(output.numel() for output in expected.outputs)
    if len(sizes) > 1 or num_elements < MANY or not (size := next(iter(sizes))):
        return whole
    step = max(1, _PIECE * size[0] // num_elements)
    found: list[tuple[Any, list[Any]]] = []
    for start in range(0, size[0], step):
        at = slice(start, start + step)
        part = [rows(value, size[0], at) for value in inputs]
        try:
            outputs = reference.expected(model, part).outputs
        except (InvalidReference, UnsupportedReference):
            return whole
        if not all(torch.equal(one, two[at]) for one, two in zip(outputs, expected.outputs, strict=True)):
            return whole
        found.append((at, part))
    return found


def _first(differences: Iterable[Difference | None]) -> Difference | None:
    return next((difference for difference in differences if difference is not None), None)


def _distance(one: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far each element of an answer is from the exact one, in float32; zeros for whole numbers."""
    distance = torch.zeros(exact.shape, device=exact.device)
    if exact.is_floating_point() or exact.is_complex():
        for at in pieces_of(exact.shape):
            distance[at] = (one[at].to(exact.dtype) - exact[at]).abs().float()
    return distance


def least_stored(answer: torch.Tensor) -> float:
    """Which share of a right answer kernels store at least; what they only add to may be zeros where nothing comes."""
    return _LEAST_STORED * int(answer.count_nonzero()) / max(1, answer.numel())


def num_made(answer: torch.Tensor, inputs: list[torch.Tensor]) -> int:
    """The elements that neither a copy of an input holds nor a tensor that one value fills: those that an update makes.

    The value is that of more than half of all elements, if there is one.
    """
    middle = answer.flatten().float().median().to(answer.dtype) if not answer.is_complex() else answer.new_zeros(())
    held = answer == middle if 2 * int((answer == middle).sum()) > answer.numel() else torch.zeros_like(answer).bool()
    for given in inputs:
        if given.shape == answer.shape and given.dtype is answer.dtype:
            held |= answer == given.to(answer.device)
    return answer.numel() - int(held.sum())


def check_form(answer: Recorded | Answered, expected: list[torch.Tensor], effects: SideEffects) -> None:
    """Check number, type, shape and dtype of the outputs. Raises `FaultDetected` if one differs."""
    outputs = answer.outputs
    if len(outputs) == len(expected) and answer.is_sequence != effects.returns_sequence:
        returned, wanted = ("a list or a tuple", "a torch.Tensor")[:: 1 if answer.is_sequence else -1]
        message = f"{returned} is returned, expected {wanted}"
        raise FaultDetected(Stage.LOADED, Fault.SHAPE_MISMATCH, message)
    if len(outputs) != len(expected):
        raise FaultDetected(Stage.LOADED, Fault.SHAPE_MISMATCH, f"{len(outputs)} outputs, expected {len(expected)}")
    for index, (output, tensor) in enumerate(zip(outputs, expected, strict=True)):
        if output.kind != "Tensor":
            raise FaultDetected(
                Stage.LOADED, Fault.SHAPE_MISMATCH, f"output {index} is a {output.kind}, expected a torch.Tensor"
            )
        if output.shape != tuple(tensor.shape):
            message = f"output {index} has shape {list(output.shape)}, expected {list(tensor.shape)}"
            raise FaultDetected(Stage.LOADED, Fault.SHAPE_MISMATCH, message)
        dtype = str(tensor.dtype).removeprefix("torch.")
        if output.dtype != dtype:
            raise FaultDetected(
                Stage.LOADED, Fault.DTYPE_MISMATCH, f"output {index} is {output.dtype}, expected {dtype}"
            )


def check_apart(outputs: Sequence[Place | Opaque], expected: list[torch.Tensor]) -> None:
    """Check that outputs have elements of their own, and no two are one tensor, if that is so of the task's.

    Raises `FaultDetected`.
    """
    for number, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        is_expanded = isinstance(output, Place) and _is_expanded(output.shape, output.stride)
        if is_expanded and wanted.numel() and not _is_expanded(wanted.shape, wanted.stride()):
            message = f"elements of output {number} share memory (expand), where each of the task's has its own"
            raise FaultDetected(Stage.LOADED, Fault.OUTPUT_MISMATCH, message)
    for (one, wanted), (two, other) in itertools.combinations(zip(outputs, expected, strict=True), 2):
        shared = wanted.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        is_one = isinstance(one, Place) and isinstance(two, Place) and _memory(one) == _memory(two)
        if is_one and wanted.numel() and not shared:
            message = "two outputs are one tensor, where the task returns two: a change of one would change the other"
            raise FaultDetected(Stage.LOADED, Fault.OUTPUT_MISMATCH, message)


def _memory(place: Place) -> tuple[int, int, str, int]:
    """Where a tensor lies, whatever its shape."""
    return place.storage, place.offset, place.dtype, math.prod(place.shape)


def _is_expanded(shape: Sequence[int], stride: Sequence[int]) -> bool:
    return span_of(shape, stride) < math.prod(shape)


def dtypes_of(inputs: list[Any]) -> list[str]:
    """The dtypes of the tensors among a call's inputs, in order."""
    return [str(tensor.dtype).removeprefix("torch.") for tensor in tensors_among(inputs)]


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes, shape (num_bytes,), for bitwise comparison."""
    return tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)
