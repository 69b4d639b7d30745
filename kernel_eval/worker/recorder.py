"""Records the trace of a call of a candidate: launches through Triton, and dispatched torch operators.

It runs in the candidate's process and is as untrusted: a candidate that changes it can only invalidate its own proof,
because the judge has the trace replayed on inputs that the process has not seen. It records operators that make or
change tensors; views are omitted, since tensors are identified by their place in a storage. The storages of a call are
kept alive until it ends, so that no address is reused.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import torch
import triton.language as tl
from torch._library.custom_ops import OPDEFS
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from weir.kernel_eval.ipc import unwritten
from weir.kernel_eval.ipc.messages import MAX_NAMED, NamedPlace
from weir.kernel_eval.ipc.trace import (
    DEVICE,
    Argument,
    Descriptor,
    Launch,
    Many,
    Named,
    Opaque,
    Operator,
    Place,
    Plain,
    Step,
    Storage,
    StorageKind,
    Trace,
)
from weir.kernel_eval.worker.host_tensors import HostTensors
from weir.kernel_eval.worker.kernel_values import HostReads, KernelValues

_weak: Callable[[torch.UntypedStorage], Any] = (
    StorageWeakRef  # keeps the address of the storage object from reuse, but not its memory
)
_DEVICES = ("cpu", "cuda")
_MAX_INT = 2**63
_LAZY = "view that torch conjugates or negates when it is read, and no kernel does"
_ATEN = torch.ops.aten
_UNFILLED = frozenset(
    getattr(operator, overload)
    for operator in (_ATEN.empty, _ATEN.empty_like, _ATEN.empty_strided, _ATEN.new_empty, _ATEN.new_empty_strided)
    for overload in operator.overloads()  # type: ignore[no-untyped-call]
    if overload in ("default", "memory_format")
)
_MOST_NUMBERS = 2048  # bytes of memory whose content is recorded
_OF_NUMBERS = frozenset(
    {
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    }
)
_TORCH_NAMES = (torch.dtype, torch.memory_format, torch.layout)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active between `start` and `finish`, the operators of one call are recorded."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self, values: KernelValues | None = None, hosts: HostTensors | None = None) -> None:
        """Where no kernel runs: `values` that kernels would have computed, and tensors that would lie on the host."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._values = values
        self._hosts = hosts
        self._state: dict[int, tuple[Any, int]] = {}
        self._earlier: dict[int, Any] = {}
        self._left: dict[int, tuple[int, int]] = {}  # by storage, the call that had it last, and its position there
        self._num_calls = 0
        self.kept: dict[int, tuple[int, int]] = {}  # of a call's storages those that an earlier one left, as `_left`
        self._known: dict[int, int] = {}  # address of the storage object → position in the trace
        self._held: list[torch.UntypedStorage] = []
        self._storages: list[Storage] = []
        self._steps: list[Step] = []
        self._recording = False
        self.num_failed = 0  # configurations of autotuned kernels, in this call

    def install(self) -> None:
        """Record every launch, also autotuned ones, by wrapping `JITFunction.run`."""
        self._install(JITFunction)
        bench = Autotuner._bench

        def unrecorded(*args: Any, **kwargs: Any) -> Any:
            before, self._recording = self._recording, False
            try:
                return bench(*args, **kwargs)
            finally:
                self._recording = before

        Autotuner._bench = unrecorded

    def _install(self, kind: Any) -> None:
        run = kind.run

        def recorded(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup or not self._recording:
                return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            hooks, kernel.pre_run_hooks = kernel.pre_run_hooks, []
            for hook in hooks:
                hook(*args, **kwargs)
            grids: list[tuple[int, ...]] = []

            def recorded_grid(bound: Any) -> tuple[int, ...]:
                grids.append(tuple(int(size) for size in (grid(bound) if callable(grid) else grid)))
                return grids[-1]

            try:
                with torch._C._DisableTorchDispatch():
                    result = run(kernel, *args, grid=recorded_grid, warmup=False, **kwargs)
            finally:
                kernel.pre_run_hooks = hooks
            self._steps.append(self._launch(kernel, grids[0], args, kwargs))
            return result

        kind.run = recorded

    def _launch(self, kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launch:
        given = dict(zip(kernel.arg_names, args, strict=False))
        given |= {name: value for name, value in kwargs.items() if name in kernel.arg_names}
        described = {name: self.describe(value) for name, value in given.items()}
        options = {name: self.describe(value) for name, value in kwargs.items() if name not in kernel.arg_names}
        return Launch(kernel.fn.__name__, kernel.fn.__code__.co_firstlineno, grid, described, options)

    @property
    def is_recording(self) -> bool:
        """Whether a call is being recorded."""
        return self._recording

    def is_given(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the memory of an input of the call, or of the model's state."""
        storage = tensor.untyped_storage()._cdata
        position = self._known.get(storage)
        kind = "fresh" if position is None else self._storages[position].kind
        return kind in ("input", "state") or storage in self._state

    def note(self, step: Step) -> None:
        """Add a step that torch does not report, or that is recorded elsewhere."""
        if self._recording:
            self._steps.append(step)

    @contextlib.contextmanager
    def aside(self) -> Iterator[list[Step]]:
        """Meanwhile, collect the steps of the call in a list of their own."""
        kept, self._steps = self._steps, []
        try:
            yield self._steps
        finally:
            self._steps = kept

    def add_alternatives(self, found: Sequence[Sequence[Step]]) -> None:
        """Note other ways to make the last launch, the first of which it was; what comes before it has to be the same.

        Of each way the steps, with the launch as their last.
        """
        ways = [(list(steps[:-1]), steps[-1]) for steps in found if steps]
        if not ways or not self._steps or not isinstance(self._steps[-1], Launch):
            return
        others: list[Launch] = []
        for before, launch in ways[1:]:
            is_new = launch not in (self._steps[-1], *others)
            if isinstance(launch, Launch) and before == ways[0][0] and is_new:
                others.append(launch)
        self._steps[-1] = msgspec.structs.replace(self._steps[-1], alternatives=tuple(others))

    def locate(self, address: int) -> tuple[int, int] | None:
        """The storage (by position in the trace) and the offset in bytes of an address; None if it is in no storage."""
        before = [reference for reference, _ in self._state.values()] + list(self._earlier.values())
        alive = (torch.UntypedStorage._new_with_weak_ptr(reference.cdata) for reference in before)
        for storage in (*self._held, *(found for found in alive if found is not None)):
            offset = address - storage.data_ptr()
            if 0 <= offset < storage.nbytes():
                return self._find(storage), offset
        return None

    def take_state(self) -> list[torch.UntypedStorage]:
        """All storages that exist after construction. Traces refer to them by position in this list."""
        storages: dict[int, torch.UntypedStorage] = {}
        for thing in gc.get_objects():
            if issubclass(type(thing), torch.Tensor) and thing.device.type in _DEVICES:
                storage = torch.Tensor.untyped_storage(thing)
                storages[storage._cdata] = storage
        state = list(storages.values())
        self._state = {s._cdata: (_weak(s), index) for index, s in enumerate(state)}
        return state

    def named_state(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> tuple[NamedPlace, ...]:
        """The named tensors among the state that was taken."""
        named: list[NamedPlace] = []
        for name, tensor in tensors:
            _, index = self._state.get(tensor.untyped_storage()._cdata, (None, None))
            if index is not None and len(named) < MAX_NAMED:
                dtype = str(tensor.dtype).removeprefix("torch.")
                place = Place(index, dtype, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))
                named.append(NamedPlace(name, place))
        return tuple(named)

    def start(self, inputs: list[torch.Tensor]) -> None:
        """Begin to record a call with these tensors among its arguments, in order."""
        self._known, self._held, self._storages, self._steps, self.num_failed = {}, [], [], [], 0
        self.kept = {}
        for index, tensor in enumerate(inputs):
            self._add(tensor.untyped_storage(), "input", index)
        self._recording = True

    def finish(self, outputs: list[Any]) -> Trace:
        """End the record of a call, and return its trace."""
        self._recording = False
        described = tuple(self.describe(o) if type(o) is torch.Tensor else Opaque(type(o).__name__) for o in outputs)
        for storage in self._held:
            self._earlier[storage._cdata] = _weak(storage)
            self._left[storage._cdata] = self._num_calls, self._known[storage._cdata]
        self._held = []
        self._num_calls += 1
        self._earlier = {key: reference for key, reference in self._earlier.items() if not reference.expired()}
        return Trace(tuple(self._storages), tuple(self._steps), described)  # type: ignore[arg-type]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (inside := _implementation(func, args)) is not None:
            with self, self._mode_inside():  # what the operator does is recorded, not its name
                return inside(*args, **kwargs)
        if self._values is not None:
            return self._follow(self._values, func, args, kwargs)
        return self._call(func, args, kwargs)

    def _mode_inside(self) -> contextlib.AbstractContextManager[Any]:
        """The function mode of a process where no kernel runs, which torch leaves for the call of an operator."""
        if self._values is None or self._hosts is None or not self._hosts.is_calling:
            return contextlib.nullcontext()
        return HostReads(self._values, self._hosts)

    def _follow(self, values: KernelValues, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As `_call`, where no kernel runs. Raises `NeedsKernelResult`."""
        read = tensors_in([*args, *kwargs.values()])
        depends = values.follow(func, read)
        result = self._call(func, args, kwargs)
        if self._hosts is not None and not read:
            self._hosts.note_unseen(tensors_in([result]))
        if depends:
            values.mark([*tensors_in([result]), *(read if any(map(_is_written, _schema(func))) else [])])
        return result

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._recording:
            result = func(*args, **kwargs)
            return result if func not in _UNFILLED else _filled(result)
        changes = any(map(_is_written, _schema(func)))
        before = tuple(self.describe(value) for value in args), {k: self.describe(v) for k, v in kwargs.items()}
        result = func(*args, **kwargs)
        made = [value for value in tensors_in([result]) if value.untyped_storage()._cdata not in self._known]
        if changes or made:
            for value in made:
                self._add(value.untyped_storage(), "fresh", 0)
            results = tuple(self.place(value) for value in tensors_in([result]))
            self._steps.append(Operator(str(func), *before, results))
        return result

    def _add(self, storage: torch.UntypedStorage, kind: StorageKind, index: int) -> int:
        position = self._known.setdefault(storage._cdata, len(self._storages))
        if position == len(self._storages):
            self._held.append(storage)
            self._storages.append(Storage(kind, index, storage.nbytes()))
        return position

    def _find(self, storage: torch.UntypedStorage) -> int:
        address = storage._cdata
        if address in self._known:
            return self._known[address]
        reference, index = self._state.get(address, (None, 0))
        if reference is not None and not reference.expired():
            return self._add(storage, "state", index)
        earlier = self._earlier.get(address)
        if earlier is None or earlier.expired():
            return self._add(storage, "unknown", 0)
        position = self._add(storage, "earlier", 0)
        self.kept[position] = self._left[address]
        return position

    def _note_numbers(self, tensor: torch.Tensor) -> None:
        """Record small memory that Python filled and torch does not report (`torch.tensor([…])`, `t[0] = 3.0`).

        What is in it is in the record then, as the numbers of operators are.
        """
        storage = tensor.untyped_storage()
        is_known = any(storage._cdata in known for known in (self._known, self._state, self._earlier))
        if is_known or not self._recording:
            return
        follows = self._values is not None and bool(self._values) and self._values.holds(storage)
        if not follows and tensor.dtype in _OF_NUMBERS and storage.nbytes() <= _MOST_NUMBERS:
            with torch._C._DisableTorchDispatch():
                numbers = torch.tensor([], dtype=tensor.dtype, device=storage.device).set_(storage).tolist()
            if steps := filled_with(numbers, tensor.dtype, len(self._storages)):  # else it stays unknown
                self._add(storage, "fresh", 0)
                self._steps += steps

    def place(self, tensor: torch.Tensor) -> Place:
        """Where a tensor lies."""
        self._note_numbers(tensor)
        storage = self._find(tensor.untyped_storage())
        dtype = str(tensor.dtype).removeprefix("torch.")
        return Place(storage, dtype, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))

    def describe(self, value: Any) -> Argument:
        """An argument of an operator or a launch, as traces have it."""
        if isinstance(value, torch.Tensor):
            return Opaque(_LAZY) if value.is_conj() or value.is_neg() else self.place(value)
        if isinstance(value, tl.constexpr):
            return self.describe(value.value)
        if value is None or isinstance(value, bool | str | float) or (type(value) is int and abs(value) < _MAX_INT):
            return Plain(value)
        if isinstance(value, list | tuple):
            return Many("list" if isinstance(value, list) else "tuple", tuple(self.describe(v) for v in value))
        if isinstance(value, _TORCH_NAMES):
            return Named("torch", str(value).removeprefix("torch."))
        if isinstance(value, tl.dtype):
            return Named("triton", str(value))
        if isinstance(value, torch.device):
            return Plain(None) if value.type == "cpu" else DEVICE
        return self._describe_for_kernel(value)

    def _describe_for_kernel(self, value: Any) -> Argument:
        if isinstance(value, TensorDescriptor):
            return Descriptor(
                self.place(value.base), tuple(value.shape), tuple(value.strides), tuple(value.block_shape),
                str(value.padding),
            )  # fmt: skip
        function = getattr(value, "fn", None)
        if callable(function) and isinstance(getattr(function, "__name__", None), str):
            return Named("kernel", function.__name__)
        return Opaque(type(value).__name__)


def filled_with(numbers: list[bool | int | float], dtype: torch.dtype, storage: int) -> list[Operator]:
    """Operators that make a tensor of numbers in a storage, named by its position; none where one is too large."""
    if not numbers or any(type(number) is int and abs(number) >= _MAX_INT for number in numbers):
        return []
    name = str(dtype).removeprefix("torch.")
    whole = Place(storage, name, (len(numbers),), (1,), 0)
    size = Many("list", (Plain(len(numbers)),))
    made = [Operator("aten.full.default", (size, Plain(numbers[0])), {"dtype": Named("torch", name)}, (whole,))]
    end = 0
    for _, run in itertools.groupby(numbers, key=repr):  # a zero below zero is another
        number, *others = run
        start, end = end, end + 1 + len(others)
        if start:
            place = Place(storage, name, (end - start,), (1,), start)
            made.append(Operator("aten.fill_.Scalar", (place, Plain(number)), {}, (place,)))
    return made


def _implementation(func: Any, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The function behind an operator of `torch.library.custom_op` or `triton_op`; None for other operators."""
    definition = OPDEFS.get(func._schema.name)
    if definition is None:
        return None
    device = next((tensor.device.type for tensor in tensors_in(args)), None)
    functions = definition._backend_fns
    function = functions.get(device) or functions.get(None)
    unwrapped: Callable[..., Any] | None = getattr(function, "__wrapped__", function)
    return unwrapped  # torch's wrapper would import torch._dynamo, which takes seconds


def _filled(made: torch.Tensor) -> torch.Tensor:
    """A tensor that was just allocated, with what memory may hold that nothing has written."""
    if made.device.type in _DEVICES and made.layout is torch.strided:
        storage = made.untyped_storage()
        unwritten.fill(torch.tensor([], dtype=torch.uint8, device=storage.device).set_(storage))
    return made


def _schema(func: Any) -> list[Any]:
    return func._schema.arguments  # type: ignore[no-any-return]


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among values, and among those of their lists and tuples."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, torch.Tensor)]
    return found
