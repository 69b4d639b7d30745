"""Checks from a trace whether a call launched kernels and whether its answer comes from them. Pure, no torch.

torch may move data that depends on the call's inputs (copies, casts, padding, concatenation, indexing: `HELPERS`);
only kernels may compute with it. A cast that drops more than digits of a fraction is a computation: to integers, to
booleans, to integers of a smaller range, to floats of 8 bits. So is a look-up at indices that come from inputs or
kernels: whatever chooses by data computes. So is moving parts of values (the halves of integers, as a view of another
dtype has them), and a cast of values that a view of another dtype makes others.
Where the task's own code only moves data, moving it is the work, and torch may not do that either. Operators that the
server permits may compute beside kernels; they are listed, so that what the kernels did can be told from them. Tensors
that torch makes from constants and from the model's own state are setup, which is allowed by operators that read only
what they are given (`safe_operators.py`); data from elsewhere (a file, unfilled memory) is foreign. The analysis
follows storages: a storage that a computing operator of torch wrote to is tainted, and so is everything derived from
it. A trace is a claim; it becomes evidence when its launches, replayed on other inputs, give the right answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weir.kernel_eval.ipc.trace import (
    EXTENSION,
    OF_A_FORM,
    Launch,
    NativeLaunch,
    Opaque,
    Operator,
    Place,
    Step,
    StorageKind,
    Trace,
    operator_name,
    places,
)
from weir.kernel_eval.judge.source.safe_operators import ON_CONSTANTS

Permitted = frozenset[str] | None  # names of operators, without namespace and overload; None: all
NONE: frozenset[str] = frozenset()

_NEW = "empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like new_ones"
_EMPTY = frozenset(["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"])
_FILLED = "full full_like new_full arange eye scalar_tensor fill_ zero_"
_COPIED = "clone copy copy_ _to_copy contiguous cat stack constant_pad_nd repeat _unsafe_view _reshape_copy view_copy"
_PICKED = "flip roll rot90 index index_select gather unfold_copy im2col slice_scatter select_scatter narrow_copy"
_PADDED = " ".join(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3))
_MOVED = f"{_COPIED} {_PICKED} {_PADDED} lift_fresh lift_fresh_copy pixel_shuffle pixel_unshuffle channel_shuffle"
MOVES = frozenset(_MOVED.split())
HELPERS = frozenset(f"{_NEW} {_FILLED} {_MOVED}".split())
_SERIES = "range linspace logspace tril_indices triu_indices fft_fftfreq fft_rfftfreq empty_permuted"
_DRAWN = "rand randn randint randperm normal"
_WINDOWS = "bartlett_window blackman_window hamming_window hann_window kaiser_window"
_FROM_NOTHING = HELPERS | frozenset(
    f"{_SERIES} {_DRAWN} {_WINDOWS}".split()
)  # operators that may make a tensor from no other
_UNFILLED = frozenset(
    ["resize", "resize_", "resize_as_", "_resize_output_", "set_"]
)  # operators whose result is uninitialised or foreign memory


_ONE_NUMBER = 8  # bytes
_SETUP = _FROM_NOTHING | ON_CONSTANTS  # operators that may run on tensors which hold nothing of the inputs


def broken_by(
    trace: Trace,
    relaxed: frozenset[str],
    *,
    only_moves: bool = False,
    permitted: Permitted = NONE,
    given: Sequence[str] = (),
    changing: Collection[int] = (),
) -> tuple[str, str] | None:
    """The first rule that a call broke, and the violation in words; None if it broke none.

    `only_moves`: the task's own code moves data, and computes nothing. `given`: the dtypes of the call's tensors.
    `changing`: the pieces of the model's state that calls change, by number: what earlier inputs left, if it is no
    single number (a count of steps).
    """
    if not trace.launched and "no_kernel_launched" not in relaxed:
        return "no_kernel_launched", "the answer did not come from a kernel: none was launched in this call"
    flow = _Flow(trace, relaxed, only_moves, permitted, given, changing)
    for step in trace.steps:
        flow.follow(step)
    for index, output in enumerate(trace.outputs):
        if isinstance(output, Place) and 0 not in output.shape:
            reason = flow.tainted.get(output.storage)
            if flow.torch_work and output.storage not in flow.from_kernels:
                reason = reason or ("kernel_did_no_work", f"no kernel has a part in output {index}")
            if reason is not None and reason[0] not in relaxed:
                return reason
    return None


def torch_work(
    trace: Trace,
    relaxed: frozenset[str],
    *,
    only_moves: bool = False,
    permitted: Permitted = NONE,
    given: Sequence[str] = (),
) -> list[Operator]:
    """The steps in which torch computed with the inputs, as the server permits."""
    flow = _Flow(trace, relaxed, only_moves, permitted, given)
    for step in trace.steps:
        flow.follow(step)
    return flow.torch_work


def untransferable(trace: Trace) -> str | None:
    """The reason why a trace cannot be replayed, an argument of an unknown kind; None if it can be replayed."""
    for step in trace.steps:
        if isinstance(step, NativeLaunch):
            if step.opaque is not None:
                return f"{step.kernel} {step.opaque}"
            continue
        given = step.given if isinstance(step, Launch) else [*step.arguments, *step.keywords.values()]
        for argument in given:
            if isinstance(argument, Opaque) and step.name == EXTENSION:
                return f"the candidate's extension {argument.kind}"
            if isinstance(argument, Opaque):
                where = step.kernel if isinstance(step, Launch) else step.name
                return f"{where} is given a {argument.kind}"
    return None


def needed(trace: Trace, relaxed: frozenset[str], *, permitted: Permitted = NONE, updates_state: bool = False) -> Trace:
    """The trace without the operators that taint their results: the answer of a valid call does not depend on them.

    `updates_state`: keep those that compute from the inputs what the task's call changes of its model, by operators
    that read only what they are given.
    """
    flow = _Flow(trace, relaxed, permitted=permitted)
    stays = [flow.follow(step) or (updates_state and flow.is_harmless(step)) for step in trace.steps]
    kept = tuple(step for step, stay in zip(trace.steps, stays, strict=True) if stay)
    return Trace(trace.storages, kept, trace.outputs, sum(stays[: trace.num_repeated]))


class _Flow:
    """The storages that hold data of the inputs, data of kernels, and those tainted by computations of torch."""

    def __init__(
        self,
        trace: Trace,
        relaxed: frozenset[str],
        only_moves: bool = False,
        permitted: Permitted = NONE,
        given: Sequence[str] = (),
        changing: Collection[int] = (),
    ) -> None:
        self._only_moves = only_moves
        self._permitted = permitted
        self.torch_work: list[Operator] = []
        self.from_kernels: set[int] = set()
        self._fresh = {i for i, storage in enumerate(trace.storages) if storage.kind == "fresh"}
        self._torch_may_compute = "torch_operator" in relaxed
        self._constants: dict[int, set[str]] = {}  # the dtypes of what torch wrote, by storage
        self._contents: dict[int, set[str]] = {  # of what was given, or torch wrote from that
            at: {given[storage.index]}
            for at, storage in enumerate(trace.storages)
            if storage.kind == "input" and storage.index < len(given)
        }
        kinds = [storage.kind for storage in trace.storages]
        self._from_inputs = {i for i, kind in enumerate(kinds) if kind in ("input", "earlier", "unknown")}
        self._from_inputs |= {
            i
            for i, storage in enumerate(trace.storages)
            if storage.kind == "state" and storage.index in changing and storage.size_bytes > _ONE_NUMBER
        }
        unknown = (
            "foreign_memory",
            "the answer lies in memory that neither torch nor a kernel filled in this call; what Python or numpy puts "
            "in a tensor is recorded up to 2048 bytes: make larger tables in __init__, or by operators of torch",
        )
        self.tainted = {i: unknown for i, kind in enumerate(kinds) if kind == "unknown"}

    def follow(self, step: Step) -> bool:
        """Follow one step. Returns False if its result is tainted by it or by what it reads."""
        if not isinstance(step, Operator):
            self._taint(step.storages, step.storages, None)
            self._from_inputs |= step.storages
            self.from_kernels |= step.storages & self._fresh
            return True
        given = step.arguments[1:] if operator_name(step) in OF_A_FORM else step.arguments
        read = {place.storage for place in places([*given, *step.keywords.values()])}
        written = {place.storage for place in step.results}
        works = _computes(step) or self._looks_up(step) or self._takes_apart(step)
        works = works or (self._only_moves and _is_move(step))
        computes = works and bool(read & self._from_inputs) and not self._torch_may_compute
        if operator_name(step) not in _EMPTY:
            kind = self._contents if read & self._from_inputs else self._constants
            for place in step.results:
                kind.setdefault(place.storage, set()).add(place.dtype)
        if not written:
            written = read  # an operator that returns nothing changes its arguments
        if operator_name(step) in _UNFILLED or not (read or operator_name(step) in _FROM_NOTHING):
            foreign = "foreign_memory", f"{step.name} takes what neither torch nor a kernel made in this call"
            self.tainted.update(dict.fromkeys(written - self.tainted.keys(), foreign))
            return False
        if computes and (self._permitted is None or operator_name(step) in self._permitted):
            self.torch_work.append(step)
            computes = False
        self._taint(read, written, step.name if computes else None)
        if not (read & self._from_inputs or self._torch_may_compute or operator_name(step) in _SETUP):
            self.tainted.update(dict.fromkeys(written - self.tainted.keys(), _unsafe(step)))
            return False
        if read & self._from_inputs:
            self._from_inputs |= written
        if read & self.from_kernels:
            self.from_kernels |= written
        return not (computes or read & self.tainted.keys())

    def is_harmless(self, step: Step) -> bool:
        """Whether a step reads only memory that was filled, by an operator that checks what it reads."""
        if not isinstance(step, Operator) or operator_name(step) not in _SETUP:
            return False
        touched = {place.storage for place in places([*step.arguments, *step.keywords.values(), *step.results])}
        return all(self.tainted.get(storage, ("",))[0] != "foreign_memory" for storage in touched)

    def _looks_up(self, step: Operator) -> bool:
        """Whether inputs say where to read: any function of few values can be a table, and a choice of two a mask."""
        if operator_name(step) not in _INDEXED:
            return False
        where = places([*step.arguments[1:], *step.keywords.values()])
        return any(place.storage in self._from_inputs for place in where)

    def _takes_apart(self, step: Operator) -> bool:
        """Whether parts of values are moved, or values are cast that a view of another dtype makes others."""
        for place in places([*step.arguments, *step.keywords.values()]):
            casts = any(result.dtype != place.dtype for result in step.results)
            for dtype in self._contents.get(place.storage, ()):
                if _shows_others(dtype, place.dtype) and (casts or _item_bits(dtype) != _item_bits(place.dtype)):
                    return True
        return any(
            _shows_others(dtype, result.dtype) and _item_bits(result.dtype) < _item_bits(dtype)
            for result in step.results
            for dtype in (self._contents | self._constants).get(result.storage, ())
        )

    def _taint(self, read: set[int], written: set[int], operator: str | None) -> None:
        reason = next((self.tainted[storage] for storage in sorted(read) if storage in self.tainted), None)
        if operator is not None:
            reason = reason or ("torch_operator", f"torch computed a part of the answer: {operator}")
        if reason is not None:
            self.tainted.update(dict.fromkeys(written, reason))


def _unsafe(step: Operator) -> tuple[str, str]:
    message = (
        f"torch computes with constants by {step.name}, which is not among the operators that a judge repeats, because "
        "not all of torch's check what memory they read: compute it in __init__"
    )
    return "torch_operator", message


def _computes(step: Operator) -> bool:
    if operator_name(step) not in HELPERS or step.name == "aten.view_copy.dtype":
        return True
    if not _is_move(step):
        return False
    moved = places([*step.arguments, *step.keywords.values()])
    if operator_name(step) in _INDEXED:
        moved = places(list(step.arguments[:1]))  # the others say where, and are not in the result
    return any(drops(place.dtype, result.dtype) for place in moved for result in step.results)


def _is_move(step: Operator) -> bool:
    """Whether values of tensors are in the result; `fill_` takes a number, or a tensor of one value."""
    return operator_name(step) in MOVES or step.name == "aten.fill_.Tensor"


def drops(source: str, target: str) -> bool:
    """Whether a cast between dtypes, by name, drops more than digits of a fraction. int64 to int32 does not count:
    kernels ask for such indices. A player refuses it where it changes a value (`replay/steps.py`)."""
    if source == target or (source, target) == ("int64", "int32"):
        return False
    if target.startswith("float8") or target == "bool":
        return True
    if _has_fractions(target):
        return False
    if _has_fractions(source):
        return True
    low, high = _RANGES.get(source, _UNKNOWN)
    least, most = _RANGES.get(target, (0, 0))
    return bool(low < least or high > most)


_SAME_VALUES = {"bool": ("uint8", "int8"), "complex64": ("float32",), "complex128": ("float64",)}


def _shows_others(dtype: str, as_dtype: str) -> bool:
    """Whether a view of another dtype shows other values; not so for parts of complex numbers, and for booleans."""
    return as_dtype != dtype and as_dtype not in _SAME_VALUES.get(dtype, ())


def _item_bits(dtype: str) -> int:
    digits = "".join(character for character in dtype.partition("_")[0] if character.isdigit())
    return int(digits or 8)


_INDEXED = frozenset({"index", "index_select", "gather"})
_UNKNOWN = (-(2**64), 2**64)
_RANGES = {
    "bool": (0, 1),
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}


def _has_fractions(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def given_back(trace: Trace, kinds: Collection[StorageKind]) -> set[int]:
    """The outputs, by number, that are memory of some kinds, as of an input, if others are not."""
    storages = [output.storage for output in trace.outputs if isinstance(output, Place)]
    given = {number for number, storage in enumerate(storages) if trace.storages[storage].kind in kinds}
    return given if len(given) < len(trace.outputs) == len(storages) else set()


def returns_input(trace: Trace) -> bool:
    """Whether an output is memory of an input."""
    return any(trace.storages[storage].kind == "input" for storage in _storages_of_outputs(trace))


def returns_kept_memory(trace: Trace, but: Collection[int] = ()) -> bool:
    """Whether an output is memory that existed before the call, and that a step of the call may write to.

    `but`: outputs, by number, that may be.
    """
    written = {storage for launch in trace.launches for storage in launch.storages}
    written |= {place.storage for step in trace.steps if isinstance(step, Operator) for place in step.results}
    others = (output for at, output in enumerate(trace.outputs) if at not in but)
    returned = {output.storage for output in others if isinstance(output, Place) and 0 not in output.shape}
    return any(trace.storages[storage].kind in ("state", "earlier", "remade") for storage in written & returned)


def has_order(output: Place, stride: Sequence[int]) -> bool:
    """Whether the elements of an output lie as those of a tensor of its shape and this stride."""
    steps = zip(output.shape, output.stride, stride, strict=True)
    return 0 in output.shape or all(one == two for size, one, two in steps if size > 1)


def _storages_of_outputs(trace: Trace) -> set[int]:
    return {output.storage for output in trace.outputs if isinstance(output, Place) and 0 not in output.shape}
