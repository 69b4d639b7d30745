"""What a trace says of a call: were kernels launched, and does the answer come from them? Pure, no torch.

Data that stems from the call's inputs may be moved by torch (copies, casts, padding, concatenation: `HELPERS`), and
computed with by kernels only; a cast that drops fractions computes. What torch makes of constants and of the model's
own state is setup, and free; what it takes from elsewhere (a file, memory that nobody filled) is foreign. Followed by
storages: one that a computing operator of torch wrote to is spoiled, and so is all that follows from it. A trace is a
claim; it becomes evidence when its launches, run elsewhere on other inputs, give the right answer (`replayer.py`).
"""

from __future__ import annotations

from weir.kernel_eval.ipc.trace import EXTENSION, Launch, NativeLaunch, Opaque, Operator, Place, Step, Trace, places

_NEW = "empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like new_ones"
_FILLED = "full full_like new_full arange eye scalar_tensor fill_ zero_ lift_fresh lift_fresh_copy"
_MOVED = "clone copy copy_ _to_copy contiguous cat stack constant_pad_nd repeat _unsafe_view _reshape_copy view_copy"
_MOVES = frozenset(_MOVED.split())
HELPERS = frozenset(f"{_NEW} {_FILLED} {_MOVED}".split())
_SERIES = "range linspace logspace tril_indices triu_indices fft_fftfreq fft_rfftfreq empty_permuted"
_DRAWN = "rand randn randint randperm normal"
_WINDOWS = "bartlett_window blackman_window hamming_window hann_window kaiser_window"
_FROM_NOTHING = HELPERS | frozenset(f"{_SERIES} {_DRAWN} {_WINDOWS}".split())  # what may make a tensor of no other
_UNFILLED = frozenset(["resize", "resize_", "resize_as_", "_resize_output_", "set_"])  # memory as it lies there


def broken_by(trace: Trace, relaxed: frozenset[str]) -> tuple[str, str] | None:
    """The first rule that a call broke, with what was seen; None if it broke none."""
    if not trace.launched and "no_kernel_launched" not in relaxed:
        return "no_kernel_launched", "the answer did not come from a kernel: none was launched in this call"
    flow = _Flow(trace, relaxed)
    for step in trace.steps:
        flow.follow(step)
    for output in trace.outputs:
        if isinstance(output, Place) and 0 not in output.shape:
            reason = flow.spoiled.get(output.storage)
            if reason is not None and reason[0] not in relaxed:
                return reason
    return None


def untransferable(trace: Trace) -> str | None:
    """Why a trace cannot be run elsewhere, though it breaks no rule: an argument of an unknown kind."""
    for step in trace.steps:
        if isinstance(step, NativeLaunch):
            if step.opaque is not None:
                return f"{step.kernel} {step.opaque}"
            continue
        if isinstance(step, Launch):
            arguments = (*step.arguments.values(), *step.options.values())
        else:
            arguments = (*step.arguments, *step.keywords.values())
        for argument in arguments:
            if isinstance(argument, Opaque) and step.name == EXTENSION:
                return f"the candidate's extension {argument.kind}"
            if isinstance(argument, Opaque):
                where = step.kernel if isinstance(step, Launch) else step.name
                return f"{where} is given a {argument.kind}"
    return None


def needed(trace: Trace, relaxed: frozenset[str]) -> Trace:
    """The trace without operators that spoiled nothing of the answer and are no part of it."""
    flow = _Flow(trace, relaxed)
    kept = tuple(step for step in trace.steps if flow.follow(step))
    return Trace(trace.storages, kept, trace.outputs)


class _Flow:
    """Which storages hold data of the inputs, and which what torch computed from it."""

    def __init__(self, trace: Trace, relaxed: frozenset[str]) -> None:
        self._torch_may_compute = "torch_operator" in relaxed
        kinds = [storage.kind for storage in trace.storages]
        self._from_inputs = {i for i, kind in enumerate(kinds) if kind in ("input", "earlier", "unknown")}
        unknown = "foreign_memory", "the answer lies in memory that neither torch nor a kernel filled in this call"
        self.spoiled = {i: unknown for i, kind in enumerate(kinds) if kind == "unknown"}

    def follow(self, step: Step) -> bool:
        """Take one step; False if torch computed something in it that only kernels may."""
        if not isinstance(step, Operator):
            self._spoil(step.storages, step.storages, None)
            self._from_inputs |= step.storages
            return True
        read = {place.storage for place in places([*step.arguments, *step.keywords.values()])}
        written = {place.storage for place in step.results}
        computes = _computes(step) and bool(read & self._from_inputs) and not self._torch_may_compute
        if not written:
            written = read  # an operator that returns nothing changes what it is given
        if _name(step) in _UNFILLED or not (read or _name(step) in _FROM_NOTHING):
            foreign = "foreign_memory", f"{step.name} takes what neither torch nor a kernel made in this call"
            self.spoiled.update(dict.fromkeys(written - self.spoiled.keys(), foreign))
            return False
        self._spoil(read, written, step.name if computes else None)
        if read & self._from_inputs:
            self._from_inputs |= written
        return not (computes or read & self.spoiled.keys())

    def _spoil(self, read: set[int], written: set[int], operator: str | None) -> None:
        reason = next((self.spoiled[storage] for storage in sorted(read) if storage in self.spoiled), None)
        if operator is not None:
            reason = reason or ("torch_operator", f"torch computed a part of the answer: {operator}")
        if reason is not None:
            self.spoiled.update(dict.fromkeys(written, reason))


def _computes(step: Operator) -> bool:
    moved = places([*step.arguments, *step.keywords.values()]) if _name(step) in _MOVES else []
    truncates = any(map(_has_fractions, moved)) and not all(map(_has_fractions, step.results))
    return truncates or _name(step) not in HELPERS


def _has_fractions(place: Place) -> bool:
    return place.dtype.startswith(("float", "bfloat", "complex"))


def _name(step: Operator) -> str:
    return step.name.split(".")[1] if step.name.startswith("aten.") else step.name
