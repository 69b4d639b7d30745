"""The task's own code, in KernelBench's form: `Model`, `get_inputs()`, `get_init_inputs()`.

It is trusted not to attack, but not trusted to work: any error, and a step that takes too long, becomes an
`InvalidReference`, which is never the candidate's fault. Runs only in a judge.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import types
from collections.abc import Iterator
from typing import Any

import torch

from weir.kernel_eval.tasks import task_source
from weir.kernel_eval.tasks.answers import (
    Expected,
    far_apart,
    integers_among,
    is_finite,
    is_integer,
    may_pick,
    num_floating,
    part_of,
    replaced,
    specials,
)
from weir.kernel_eval.tasks.branches import Branches
from weir.kernel_eval.tasks.device_mapping import CpuForCuda, is_accepted_by_a_cpu, moved, take_values
from weir.kernel_eval.tasks.draws.integer_draws import Integers, num_draws, observed
from weir.kernel_eval.tasks.effects.side_effects import Advancing, SideEffects, changed_inputs, side_effects, tensors_of
from weir.kernel_eval.tasks.errors import InvalidReference, OutOfMemory, UnsupportedReference, described
from weir.kernel_eval.tasks.hardener import ROUNDINGS, Hardener, Posed
from weir.kernel_eval.tasks.input_draws import redrawn
from weir.kernel_eval.tasks.input_variants import MILDER, PLAIN, SPECIAL, Draw, Size, Variant, opinfo_sizes, other_sizes
from weir.kernel_eval.tasks.more_draws import more_draws
from weir.kernel_eval.tasks.rounding import RoundedOperators, WideOperators, in_float64, nudged
from weir.kernel_eval.tasks.rows import needs_mask, num_rows
from weir.kernel_eval.tasks.seeds import seed_everything
from weir.kernel_eval.tasks.step_limit import time_limit
from weir.kernel_eval.tasks.supported import as_plain, check_supported, function_of
from weir.kernel_eval.tasks.watches.code_ways import CodeWays
from weir.kernel_eval.tasks.watches.oddities import OwnOddities
from weir.kernel_eval.tasks.watches.pointwise import PointwiseWatch
from weir.kernel_eval.tasks.watches.ties import TAKEN, OtherTies

_FILE = "reference.py"  # as which a task's code is compiled
_FEW_ROWS = 4  # of which a mixed draw has none for some kinds
_OTHER_SEED = 20_261  # of weights, which no evaluation has but by chance
_NO_MEMORY = "can't allocate memory"  # in the text of torch's error
_TOO_MUCH = "needs more memory than kernel_eval.task_memory_bytes allows; make its sizes smaller"
_BY_LOT = 32  # one of so many elements of an answer may depend on which of equal values are taken
_PIECE = 1 << 20  # elements that are looked at together


class Reference:
    """The module of one task. Keeps nothing of an evaluation. All methods raise its two errors."""

    def __init__(self, source: str, timeout_s: float, *, on_gpu: bool = False) -> None:
        self._source = source
        self._timeout_s = timeout_s
        self._on_gpu = on_gpu
        self.draws_on_host = False  # inputs for a GPU, because the task's code cannot draw them there
        module = types.ModuleType("reference")
        with self._step("import"):
            exec(compile(source, _FILE, "exec"), module.__dict__)
        self._model = function_of(module, "Model")
        self._get_inputs = function_of(module, "get_inputs")
        self._get_init_inputs = getattr(module, "get_init_inputs", list)
        self._size = task_source.free_size(source, vars(module))
        self._undivided_size = task_source.undivided_size(source, vars(module))
        self._harder = task_source.harder_than_mixed(source)
        self._gives_specials: bool | None = None
        self._oddities = OwnOddities(takes_nan=Draw.SPECIAL in task_source.specials_of(source))
        self._pointwise: PointwiseWatch | None = None
        self._effects = SideEffects()
        self._known_integers: dict[Size | None, list[Integers]] = {}
        self._fixed: frozenset[str] | None = None
        self._hardener = Hardener(self, source)
        self.branches = Branches(self, source)

    def init_arguments(self, seed: int) -> list[Any]:
        """The constructor arguments of both Model and ModelNew."""
        with self._step("get_init_inputs"):
            seed_everything(seed, on_gpu=self._on_gpu)
            arguments = list(self._get_init_inputs())
        check_supported(arguments)
        return arguments

    def build(self, arguments: list[Any], weight_seed: int) -> Any:
        """A Model with weights from the seed."""
        with self._step("Model()"):
            seed_everything(weight_seed, on_gpu=self._on_gpu)
            model = self._model(*copy.deepcopy(arguments))
            if self._on_gpu and isinstance(model, torch.nn.Module):
                model = model.cuda()
                if "cuda" in self._source:  # it may draw on the device, and recorders have none
                    seed_everything(weight_seed)
                    with CpuForCuda():
                        take_values(model, self._model(*copy.deepcopy(moved(arguments, "cpu"))))
        if isinstance(model, torch.nn.Module):
            check_supported([*model.parameters(), *model.buffers()])
        return model

    def fixed_parameters(self, model: Any, arguments: list[Any]) -> frozenset[str]:
        """The parameters of Model, by name, that are the same for every seed; found out once."""
        if self._fixed is None:
            own = dict(model.named_parameters()) if isinstance(model, torch.nn.Module) else {}
            other = dict(self.build(arguments, _OTHER_SEED).named_parameters()) if own else {}
            self._fixed = frozenset(name for name in own if name in other and torch.equal(own[name], other[name]))
        return self._fixed

    def inputs(self, seed: int) -> list[Any]:
        """The arguments of one call, from the seed."""
        with self._step("get_inputs"):
            inputs: list[Any] = as_plain(list(moved(self._drawn(seed), "cuda" if self._on_gpu else "cpu")))
        check_supported(inputs)
        return inputs

    def _drawn(self, seed: int) -> list[Any]:
        """What the task draws: on the GPU where its code can, because a host takes seconds for large inputs."""
        if self._on_gpu and not self.draws_on_host:
            seed_everything(seed, on_gpu=True)
            try:
                with torch.device("cuda"):
                    return list(self._get_inputs())
            except torch.AcceleratorError:
                raise
            except (RuntimeError, TypeError, ValueError):  # it asks for numpy's values, or has a generator of its own
                self.draws_on_host = True
        seed_everything(seed, on_gpu=self._on_gpu)
        return list(self._get_inputs())

    def question(self, model: Any, seed: int, variant: Variant) -> tuple[list[Any], Expected, Variant]:
        """Inputs, their expected outputs, and the variant that they are of.

        If the model does not accept the variant, or its answer cannot be compared, milder ones are tried; the last is
        the task's own draw at its own size.
        """
        for attempt in self._attempts(model, variant):
            with contextlib.suppress(InvalidReference, UnsupportedReference):
                question = self._posed(model, seed, attempt)
                if question is None:
                    continue
                if variant.draw is not Draw.DECLARED:
                    self._hardener.harden(model, question, attempt.draw, seed, mixed=variant.draw is Draw.MIXED)
                return question.inputs, question.expected, attempt
        inputs = self.inputs(seed)
        question = Posed(inputs, self.expected(model, inputs))
        del inputs
        if variant.draw is Draw.MIXED:
            self._hardener.harden(model, question, Draw.DECLARED, seed)
        return question.inputs, question.expected, PLAIN

    def _posed(self, model: Any, seed: int, attempt: Variant) -> Posed | None:
        """A draw and its answer; None if the model does not accept such a draw, or its answer cannot be compared."""
        if self.branches.is_for_signs(model, attempt.draw):
            return None
        inputs = self.branches.above_zero(model, self._varied(seed, attempt))
        if attempt.draw is Draw.BEYOND and not self._takes_huge(model, inputs):
            return None
        expected = self.expected(model, inputs)
        if attempt.draw is Draw.POINTS and self._hardener.wavers(model, inputs, expected):
            return None
        if attempt.draw is Draw.EDGES:
            inputs, expected = self._within_borders(model, inputs, expected, seed, attempt.size)
        picks = may_pick(attempt.draw, expected, by_value=self.works_by_value(model))
        return Posed(inputs, expected) if not picks and self.is_comparable(model, inputs, expected) else None

    def is_comparable(self, model: Any, inputs: list[Any], expected: Expected) -> bool:
        """Whether an answer is finite, or has NaN and infinities that another way to compute it would have, too.

        That is so if the task's own draw gives some, and float64 gives the same: they do not come from an overflow. Not
        where much of it depends on which of equal values are taken, as of scores that have underflowed.
        """
        for other in itertools.islice(self.with_other_ties(model, inputs), 1):
            pairs = zip(expected.outputs, other, strict=True)
            if sum(int(far_apart(*pair).sum()) for pair in pairs) * _BY_LOT > sum(map(torch.numel, other)):
                return False
        finite = is_finite(expected.outputs)
        hides_nan = finite and any(map(is_integer, expected.outputs))
        if hides_nan or self.watched(model).takes_places:
            call = functools.partial(self.expected, model)
            if self._oddities.are_left(call, lambda: self.inputs(0), inputs, hides_nan=hides_nan):
                return False
        if finite:
            return True
        if self._gives_specials is None:
            self._gives_specials = not is_finite(self.expected(model, self.inputs(0)).outputs)
        precise = self.expected_float64(model, inputs, expected.outputs) if self._gives_specials else None
        return precise is not None and all(
            torch.equal(specials(one), specials(two)) for one, two in zip(expected.outputs, precise, strict=True)
        )

    def with_other_ties(self, model: Any, inputs: list[Any]) -> Iterator[list[torch.Tensor]]:
        """What it answers where it takes the last of equal values, or another; nothing where torch says which."""
        for taken in TAKEN if self.watched(model).takes_any_of_equal else ():
            with OtherTies(taken):
                yield self.outputs(model, copy.deepcopy(inputs))

    def learn(self, model: Any) -> None:
        """Find out now what the draws of later questions depend on, which is known once for each task."""
        with contextlib.suppress(InvalidReference, UnsupportedReference):
            self.watched(model)
        self._hardener.exact(model)

    def watched(self, model: Any) -> PointwiseWatch:
        """What is known of the operators of Model; found out once, on inputs of the task's own."""
        if self._pointwise is None:
            watch = PointwiseWatch()
            own = self.inputs(0)
            with self._step("Model.forward()"):
                self._effects = side_effects(model, own, watch)
            self._pointwise = watch
        return self._pointwise

    def effects(self, model: Any) -> SideEffects:
        """What a call of Model changes; found out once. Raises as `question` does."""
        self.watched(model)
        return self._effects

    def fresh(self, model: Any) -> Any:
        """The model, or a copy of it if a call would change it."""
        return copy.deepcopy(model) if self.effects(model).keeps else model

    def after(self, model: Any, inputs: list[Any]) -> Any:
        """The model as a call leaves it, which does not change this one."""
        if not self.effects(model).keeps:
            return model
        advancing = Advancing(copy.deepcopy(model))
        self.expected(advancing, inputs)
        return advancing.model

    def code_ways(self) -> CodeWays:
        """A context in which the ways that the task's own Python takes are noted."""
        return CodeWays(self._get_inputs.__globals__, _FILE)

    def works_by_value(self, model: Any) -> bool:
        """Whether all operators of Model work value by value; found out once."""
        return self.watched(model).is_pointwise

    def wavers(self, model: Any, inputs: list[Any], answer: Expected, share: float = 0.0) -> bool:
        """Whether a rounding of the inputs changes more than a share of an answer's elements."""
        return self._hardener.wavers(model, inputs, answer, share)

    def takes_any_size(self, model: Any) -> bool:
        """Whether a size can be changed to any other, of a task that works value by value or is one operator."""
        if self._undivided_size is None or not (self.works_by_value(model) or self.watched(model).num_operators == 1):
            return False
        return needs_mask(self.inputs(0), self._get_inputs.__globals__[self._undivided_size])

    def has_few_rows(self, model: Any) -> bool:
        """Whether the largest input has few rows, and the task does not work value by value."""
        return not self.works_by_value(model) and num_rows(self.inputs(0)) < _FEW_ROWS

    def added(self, model: Any) -> tuple[float, ...]:
        """Small numbers that Model adds, or takes as the least, which count beside small values."""
        return tuple(sorted(self.watched(model).added))

    def needs_tiny(self, model: Any) -> bool:
        """Whether a mixed draw shows little of tiny values: it has few rows, or one answer is made of all of it."""
        return self.has_few_rows(model) or (self.effects(model).fewest == 1 and not self.works_by_value(model))

    def more_draws(self, model: Any) -> list[Draw]:
        """The draws of calls besides, in which rows, all values, or masks are of one kind."""
        turns = [Draw.TURNED] * len(self.branches.turns(model))
        return [*more_draws(self.watched(model), self.inputs(0), self.integers(None)), *turns]

    def _within_borders(
        self, model: Any, inputs: list[Any], expected: Expected, seed: int, size: Size | None
    ) -> tuple[list[Any], Expected]:
        """Inputs of a function that works value by value, with the task's own where no two ways agree, and the answer.

        That is where an answer is not finite, or where a few roundings of the inputs change it by more than a tenth
        (a tangent beside its pole).
        """
        shape = expected.outputs[0].shape
        if any(output.shape != shape or output.is_complex() for output in expected.outputs):
            return inputs, expected
        beyond = torch.zeros(shape, dtype=torch.bool, device=expected.outputs[0].device)
        step = max(1, _PIECE * shape[0] // max(1, shape.numel())) if shape else 1
        for start in range(0, shape[0], step) if shape else (0,):
            at = slice(start, start + step) if shape else ...
            part = [part_of(value, shape, at) for value in inputs]
            beyond[at] = self._beyond(model, part, [output[at] for output in expected.outputs])
        if not bool(beyond.any()):
            return inputs, expected
        own = self._sized_inputs(seed, size)
        inputs = [replaced(value, by, beyond) for value, by in zip(inputs, own, strict=True)]
        return inputs, self.expected(model, inputs)

    def _beyond(self, model: Any, inputs: list[Any], rounded: list[torch.Tensor]) -> torch.Tensor:
        """Where no two ways to compute an answer agree; its shape is that of the answers."""
        exact = self.expected_float64(model, inputs, rounded) or rounded
        near = self.expected_float64(model, inputs, rounded, roundings=ROUNDINGS) or rounded
        beyond = torch.zeros(rounded[0].shape, dtype=torch.bool, device=rounded[0].device)
        for one, two, three in zip(rounded, exact, near, strict=True):
            finite = torch.isfinite(one) & torch.isfinite(two) & torch.isfinite(three)
            two, three = two.double(), three.double()
            beyond |= ~(finite & ((three - two).abs() <= 1 + two.abs() / 10))
        return beyond

    def _attempts(self, model: Any, variant: Variant) -> Iterator[Variant]:
        """The variant, then milder ones; without the plain one."""
        harder = self._harder if variant.draw is Draw.MIXED else ()
        if harder and self.watched(model).is_pointwise:
            harder = (*(d for d in harder if d in SPECIAL), Draw.EDGES, *(d for d in harder if d not in SPECIAL))
        elif harder and self.watched(model).num_operators == 1:
            harder = (*harder[:-1], Draw.POINTS, harder[-1])  # the last is a hard draw
        milder = () if variant.draw is Draw.DECLARED else tuple(draw for draw in MILDER if draw is not variant.draw)
        if variant.draw is not Draw.MIXED:  # beside values far below zero those near it count for little
            milder = tuple(draw for draw in milder if draw is not Draw.NEGATIVE)
        for size in self._sizes(variant):
            for draw in (*harder, variant.draw, *milder, Draw.DECLARED):
                yield from self._with_integers(Variant(draw, size=size, number=variant.number))
        for draw in (*harder, variant.draw, *milder):
            if draw is not Draw.DECLARED:
                yield from self._with_integers(Variant(draw, number=variant.number))

    def _sizes(self, variant: Variant) -> list[Size]:
        name = self._undivided_size if variant.any_size else self._size
        if variant.size_seed is None or name is None:
            return []
        choose = opinfo_sizes if variant.any_size else other_sizes
        return [Size(name, size) for size in choose(self._get_inputs.__globals__[name], variant.size_seed)]

    def _with_integers(self, variant: Variant) -> Iterator[Variant]:
        """The variant with integers drawn anew, if the task has some and they may be; then without."""
        if variant.draw is not Draw.DECLARED and self.integers(variant.size):
            yield variant._replace(integers=True)
        yield variant

    def integers(self, size: Size | None) -> list[Integers]:
        """What the task's own draws at a size show about its integers and booleans; known once for each size."""
        if size not in self._known_integers:
            draws: list[list[torch.Tensor]] = []
            with contextlib.suppress(InvalidReference, UnsupportedReference):
                draws.append(integers_among(self._sized_inputs(0, size)))
                more = range(1, num_draws(self._sized_inputs(0, size)))
                draws += [integers_among(self._sized_inputs(number, size)) for number in more]
            forms = {tuple((t.shape, t.dtype) for t in tensors) for tensors in draws}
            of_one_form = len(forms) == 1
            self._known_integers[size] = (
                [observed(list(tensor)) for tensor in zip(*draws, strict=True)] if of_one_form else []
            )
        return self._known_integers[size]

    def _varied(self, seed: int, variant: Variant) -> list[Any]:
        """Inputs of a variant; the generators go on from the seed of the task's own draw, so that they repeat."""
        integers = self.integers(variant.size) if variant.integers else []
        inputs = self._sized_inputs(seed, variant.size)
        numbers: tuple[float, ...] = ()
        if variant.draw is Draw.EDGES and self._pointwise is not None:
            zeros = (-0.0,) if num_floating(inputs) == 1 or task_source.tells_zeros_apart(self._source) else ()
            numbers = (*sorted(self._pointwise.numbers), *zeros)
        drawn = redrawn(inputs, variant.draw, integers, numbers)
        return self.branches.turned(drawn, variant.number) if variant.draw is Draw.TURNED else drawn

    def _takes_huge(self, model: Any, inputs: list[Any]) -> bool:
        return self.branches.needs_huge(model, inputs) and is_accepted_by_a_cpu(model, inputs)

    def _sized_inputs(self, seed: int, size: Size | None) -> list[Any]:
        if size is None:
            return self.inputs(seed)
        names = self._get_inputs.__globals__
        before = names[size.name]
        names[size.name] = size.value
        try:
            return self.inputs(seed)
        finally:
            names[size.name] = before

    def expected(self, model: Any, inputs: list[Any]) -> Expected:
        """Run the model on a copy of the inputs, in their own precision. Raises `InvalidReference`."""
        own = copy.deepcopy(inputs)
        outputs = self.outputs(model, own)
        storages = {tensor.untyped_storage().data_ptr() for tensor in tensors_of(own) if tensor.numel()}
        return Expected(
            outputs,
            changed_inputs(own, inputs) | {*self._effects.inputs},
            any(output.numel() > 0 and output.untyped_storage().data_ptr() in storages for output in outputs),
        )

    def outputs(self, model: Any, own: list[Any]) -> list[torch.Tensor]:
        """What the model gives for inputs that it may change. Raises `InvalidReference` or `UnsupportedReference`."""
        called = self.fresh(model)
        with self._step("Model.forward()"):
            answer = called(*own)
        outputs = list(answer) if isinstance(answer, list | tuple) else [answer]
        if not outputs or not all(isinstance(output, torch.Tensor) for output in outputs):
            raise InvalidReference("Model.forward() returns something other than a tensor or several")
        check_supported(outputs)
        return [output.detach().resolve_conj().resolve_neg() for output in outputs]

    def expected_float64(
        self,
        model: Any,
        inputs: list[Any],
        like: list[torch.Tensor],
        *,
        roundings: float = 0.0,
        of_operators: float | None = None,
        alike: bool = False,
        phase: int = 1,
        formulas: bool = False,
    ) -> list[torch.Tensor] | None:
        """The outputs in float64; None if the model cannot run in float64, or gives others than `like` in form.

        `roundings`: how many times half a rounding the inputs are off. `of_operators`: how many times what operators
        compute is, where the task has nothing in float64; once if the inputs are. `alike`: equal numbers stay equal.
        `phase`: each is off otherwise. `formulas`: as in `RoundedOperators`. Raises `OutOfMemory`.
        """
        try:
            self.effects(model)  # of the model as it is
            with self._step("a copy in float64"):
                precise = Advancing(copy.deepcopy(model).double()) if isinstance(model, torch.nn.Module) else model
                times = of_operators if of_operators is not None else float(roundings > 0)
                alike = alike or (times > 0 and self._hardener.matches(model))
                exact = self._hardener.exact(model) if roundings else ()
                copied = nudged(inputs, roundings, exact, alike=alike, phase=phase) if roundings else in_float64(inputs)
            doubles = any(tensor.dtype is torch.float64 for tensor in [*tensors_of(inputs), *like])
            rounded = RoundedOperators(alike=alike, phase=phase, times=times, formulas=formulas)
            with WideOperators(), rounded if times and not doubles else contextlib.nullcontext():
                outputs = self.outputs(precise, copied)
            return outputs if [output.shape for output in outputs] == [output.shape for output in like] else None
        except OutOfMemory:
            raise
        except InvalidReference:
            return None

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Run a step of the task's code on the evaluation's device, without gradients, within the time limit."""
        try:
            place = contextlib.nullcontext() if self._on_gpu else CpuForCuda()
            with time_limit(self._timeout_s), torch.no_grad(), place:
                yield
                if self._on_gpu:
                    torch.cuda.synchronize()
        except torch.AcceleratorError:
            raise  # a fault of the device, not of the task
        except BaseException as error:  # SystemExit too
            text = described(error)
            if isinstance(error, MemoryError) or _NO_MEMORY in text:
                raise OutOfMemory(f"{name} of the task {_TOO_MUCH}: {text}") from error
            raise InvalidReference(f"{name} of the task raised {text}") from error
