"""The task's own code, in KernelBench's form: `Model`, `get_inputs()`, `get_init_inputs()`.

It is trusted not to attack, but not trusted to work: any error, and a step that takes too long, becomes an
`InvalidReference`, which is never the candidate's fault. Runs only in a judge.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import signal
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.tasks.device_mapping import CpuForCuda
from weir.kernel_eval.tasks.input_draws import is_drawn_as_integers, redrawn
from weir.kernel_eval.tasks.input_variants import MILDER, PLAIN, Draw, Variant, other_sizes
from weir.kernel_eval.tasks.integer_draws import NUM_DRAWS, Integers, observed
from weir.kernel_eval.tasks.seeds import seed_everything

_UNJUDGEABLE = (torch.float8_e4m3fn, torch.float8_e5m2)
_MESSAGE_CHARS = 4000
_MAX_TENSOR_BYTES = 4 << 30  # as compared: an expanded tensor takes no memory before


class InvalidReference(Exception):
    """The task's code fails, takes too long, or lacks a required part."""


class UnsupportedReference(Exception):
    """The task's code works, but candidates for it cannot be judged."""


class Expected(NamedTuple):
    """The outputs of `Model` for one set of inputs, and its side effects on them."""

    outputs: list[torch.Tensor]
    changes_inputs: bool
    returns_input: bool


class Reference:
    """The module of one task. Keeps nothing of an evaluation. All methods raise its two errors."""

    def __init__(self, source: str, timeout_s: float, *, on_gpu: bool = False) -> None:
        self._timeout_s = timeout_s
        self._on_gpu = on_gpu
        module = types.ModuleType("reference")
        with self._step("import"):
            exec(compile(source, "reference.py", "exec"), module.__dict__)
        self._model = _callable(module, "Model")
        self._get_inputs = _callable(module, "get_inputs")
        self._get_init_inputs = getattr(module, "get_init_inputs", list)
        self._size = free_size(source, vars(module))
        self._gives_specials: bool | None = None
        self._known_integers: dict[int | None, list[Integers]] = {}

    def init_arguments(self, seed: int) -> list[Any]:
        """The constructor arguments of both Model and ModelNew."""
        with self._step("get_init_inputs"):
            seed_everything(seed, on_gpu=self._on_gpu)
            arguments = list(self._get_init_inputs())
        _check_supported(arguments)
        return arguments

    def build(self, arguments: list[Any], weight_seed: int) -> Any:
        """A Model with weights from the seed."""
        with self._step("Model()"):
            seed_everything(weight_seed, on_gpu=self._on_gpu)
            model = self._model(*copy.deepcopy(arguments))
            if self._on_gpu and isinstance(model, torch.nn.Module):
                model = model.cuda()
        if isinstance(model, torch.nn.Module):
            _check_supported([*model.parameters(), *model.buffers()])
        return model

    def inputs(self, seed: int) -> list[Any]:
        """The arguments of one call, from the seed."""
        with self._step("get_inputs"):
            seed_everything(seed, on_gpu=self._on_gpu)
            inputs = [self._placed(value) for value in self._get_inputs()]
        _check_supported(inputs)
        return inputs

    def question(self, model: Any, seed: int, variant: Variant) -> tuple[list[Any], Expected, Variant]:
        """Inputs, their expected outputs, and the variant that they are of.

        If the model does not accept the variant, or its answer cannot be compared, milder ones are tried; the last is
        the task's own draw at its own size.
        """
        for attempt in self._attempts(variant):
            try:
                inputs = self._varied(seed, attempt)
                expected = self.expected(model, inputs)
                if self.is_comparable(model, inputs, expected):
                    return inputs, expected, attempt
            except (InvalidReference, UnsupportedReference):
                pass
        inputs = self.inputs(seed)
        return inputs, self.expected(model, inputs), PLAIN

    def is_comparable(self, model: Any, inputs: list[Any], expected: Expected) -> bool:
        """Whether an answer is finite, or has NaN and infinities that another way to compute it would have, too.

        That is so if the task's own draw gives some, and float64 gives the same: they do not come from an overflow.
        """
        if _is_finite(expected.outputs):
            return True
        if self._gives_specials is None:
            self._gives_specials = not _is_finite(self.expected(model, self.inputs(0)).outputs)
        precise = self.expected_float64(model, inputs) if self._gives_specials else None
        return precise is not None and all(
            torch.equal(_specials(one), _specials(two)) for one, two in zip(expected.outputs, precise, strict=True)
        )

    def _attempts(self, variant: Variant) -> Iterator[Variant]:
        """The variant, then milder ones; without the plain one."""
        milder = () if variant.draw is Draw.DECLARED else tuple(draw for draw in MILDER if draw is not variant.draw)
        if variant.size_seed is not None and self._size is not None:
            for size in other_sizes(self._get_inputs.__globals__[self._size], variant.size_seed):
                for draw in (variant.draw, *milder, Draw.DECLARED):
                    yield from self._with_integers(Variant(draw, size=size))
        for draw in (variant.draw, *milder):
            if draw is not Draw.DECLARED:
                yield from self._with_integers(Variant(draw))

    def _with_integers(self, variant: Variant) -> Iterator[Variant]:
        """The variant with integers drawn anew, if the task has some and they may be; then without."""
        if variant.draw is not Draw.DECLARED and self._integers(variant.size):
            yield variant._replace(integers=True)
        yield variant

    def _integers(self, size: int | None) -> list[Integers]:
        """What the task's own draws at a size show about its integers and booleans; known once for each size."""
        if size not in self._known_integers:
            draws: list[list[torch.Tensor]] = []
            with contextlib.suppress(InvalidReference, UnsupportedReference):
                draws += [_integers_among(self._sized_inputs(number, size)) for number in range(NUM_DRAWS)]
            forms = {tuple((t.shape, t.dtype) for t in tensors) for tensors in draws}
            of_one_form = len(forms) == 1
            self._known_integers[size] = (
                [observed(list(tensor)) for tensor in zip(*draws, strict=True)] if of_one_form else []
            )
        return self._known_integers[size]

    def _placed(self, value: Any) -> Any:
        """A value on the evaluation's device; tasks make their inputs on the host."""
        if isinstance(value, torch.Tensor):
            return value.cuda() if self._on_gpu else value
        if isinstance(value, list | tuple):
            return type(value)(self._placed(item) for item in value)
        return value

    def _varied(self, seed: int, variant: Variant) -> list[Any]:
        """Inputs of a variant; the generators go on from the seed of the task's own draw, so that they repeat."""
        integers = self._integers(variant.size) if variant.integers else []
        return redrawn(self._sized_inputs(seed, variant.size), variant.draw, integers)

    def _sized_inputs(self, seed: int, size: int | None) -> list[Any]:
        if size is None or self._size is None:
            return self.inputs(seed)
        names = self._get_inputs.__globals__
        before = names[self._size]
        names[self._size] = size
        try:
            return self.inputs(seed)
        finally:
            names[self._size] = before

    def expected(self, model: Any, inputs: list[Any]) -> Expected:
        """Run the model on a copy of the inputs, in their own precision. Raises `InvalidReference`."""
        own = copy.deepcopy(inputs)
        with self._step("Model.forward()"):
            answer = model(*own)
        outputs = list(answer) if isinstance(answer, list | tuple) else [answer]
        if not outputs or not all(isinstance(output, torch.Tensor) for output in outputs):
            raise InvalidReference("Model.forward() returns something other than a tensor or several")
        _check_supported(outputs)
        tensors = [(a, b) for a, b in zip(own, inputs, strict=True) if isinstance(a, torch.Tensor)]
        storages = {a.untyped_storage().data_ptr() for a, _ in tensors if a.numel()}
        return Expected(
            [output.detach().resolve_conj().resolve_neg() for output in outputs],
            any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in tensors),
            any(output.numel() > 0 and output.untyped_storage().data_ptr() in storages for output in outputs),
        )

    def expected_float64(self, model: Any, inputs: list[Any]) -> list[torch.Tensor] | None:
        """The outputs in float64; None if the model cannot run in float64."""
        try:
            precise = copy.deepcopy(model).double() if isinstance(model, torch.nn.Module) else model
            return self.expected(precise, [_to_float64(value) for value in inputs]).outputs
        except InvalidReference:
            return None

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Run a step of the task's code on the evaluation's device, without gradients, within the time limit."""
        try:
            place = contextlib.nullcontext() if self._on_gpu else CpuForCuda()
            with _time_limit(self._timeout_s), torch.no_grad(), place:
                yield
                if self._on_gpu:
                    torch.cuda.synchronize()
        except torch.AcceleratorError:
            raise  # a fault of the device, not of the task
        except BaseException as error:  # SystemExit too
            raise InvalidReference(f"{name} of the task raised {_described(error)}") from error


def free_size(source: str, names: dict[str, Any]) -> str | None:
    """The largest even size in the module that only `get_inputs` reads, so that it can be changed; None if none."""
    used: dict[bool, set[str]] = {True: set(), False: set()}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            reads = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            used[node.name == "get_inputs"] |= reads
    sizes = {n: names.get(n) for n in used[True] - used[False]}
    even = {name: size for name, size in sizes.items() if type(size) is int and size >= 4 and size % 2 == 0}
    return max(even, key=lambda name: (even[name], name)) if even else None


def _callable(module: types.ModuleType, name: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidReference(f"the task defines no {name}")
    return function  # type: ignore[no-any-return]


def _described(error: BaseException) -> str:
    """An error as text that can be encoded."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # the task's own error class may raise in __str__
        text = type(error).__name__
    return text[:_MESSAGE_CHARS].encode(errors="replace").decode()


def _check_supported(values: list[Any]) -> None:
    for value in values:
        if isinstance(value, list | tuple):
            _check_supported(list(value))
        elif isinstance(value, torch.Tensor):
            _check_tensor(value)


def _check_tensor(tensor: torch.Tensor) -> None:
    if tensor.dtype in _UNJUDGEABLE:
        raise UnsupportedReference(
            f"the task uses {tensor.dtype}, which tasks may not take or give; kernels may use it within"
        )
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise InvalidReference(f"the task takes or gives a {tensor.layout} tensor on {tensor.device}, not a dense one")
    if tensor.numel() * tensor.element_size() > _MAX_TENSOR_BYTES:
        raise InvalidReference(f"the task takes or gives a tensor of {list(tensor.shape)}: make its sizes smaller")


def _is_finite(outputs: list[torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(output).all()) for output in outputs)


def _specials(output: torch.Tensor) -> torch.Tensor:
    """Its NaN and infinities; numbers are zeros. A NaN is a 2."""
    parts = torch.view_as_real(output) if output.is_complex() else output
    return torch.where(parts.isnan(), 2, torch.where(parts.isinf(), parts.sign(), 0)).to(torch.int8)


def _integers_among(value: Any) -> list[torch.Tensor]:
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _integers_among(item)]
    return [value] if is_drawn_as_integers(value) else []


def _to_float64(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_to_float64(item) for item in value)
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def expire(signum: int, frame: types.FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
