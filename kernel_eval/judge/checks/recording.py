"""The judge's side of a recorder: has a candidate's calls recorded, once per form of inputs.

The form of a call is what its Python may depend on: shapes, strides, dtypes, and arguments that are no tensors. The
recorder gets inputs of a trial's form with the contents of another draw, so that the trials' inputs stay unknown to it.
A second recorder, forked later, repeats the first record with other contents: IR that differs between the two is not
what the source defines.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from weir.kernel_eval.ipc.forkserver import RECORDER, Exited, Leases
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import (
    MAX_NAMED,
    Constructed,
    Done,
    Init,
    KernelIr,
    Load,
    NamedPlace,
    Output,
    Record,
    Recorded,
    SendState,
)
from weir.kernel_eval.ipc.tensor_arena import Arena, tensors_among
from weir.kernel_eval.ipc.trace import MOST_WAYS, Argument, Launch, Opaque, Operator, Place, Trace, places
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.state.counterparts import MAX_DIMENSIONS, view_of
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.toolchain import launch_options
from weir.kernel_eval.toolchain.targets import MAX_GRID

MAX_RECORD_BYTES = 16 << 20  # thousands of launches, and the IR of large kernels
MAX_STEPS = 1 << 16  # of a call: launches and operators, each of which a judge follows several times
_DTYPES = frozenset(str(value).removeprefix("torch.") for value in vars(torch).values() if type(value) is torch.dtype)


class Recording:
    """One candidate in one recorder, from its source to its last record. The owner must call `end`."""

    def __init__(
        self,
        job: Job,
        leases: Leases,
        deadline: Deadline,
        relaxed: frozenset[str],
        skipped_configs: Mapping[str, int],
        *,
        all_configs: bool = False,
    ) -> None:
        """`all_configs`: each configuration of autotuned kernels is compiled, which may take longer."""
        self._job = job
        self._limits = job.limits
        self._relaxed = relaxed
        self._weight_seed = derive_seed(job.secret, "weights")
        self._recorder = WorkerChannel(leases.recorder, job.limits, deadline, RECORDER)
        self._recorder.send(Load(job.candidate_src, dict(skipped_configs), all_configs), ())
        self._call_timeout_s = job.limits.call_timeout_s + (job.limits.compile_timeout_s if all_configs else 0.0)
        self.state: list[torch.Tensor] = []  # the contents of each storage of the constructed model, as bytes
        self.named: tuple[NamedPlace, ...] = ()  # which parts of it have names
        self.details: dict[str, Any] = {}
        self._left_behind: Exited | None = None

    def construct(self, init_arguments: list[Any]) -> None:
        """Wait until the candidate is imported, construct its model, and take its state. Raises `FaultDetected`."""
        limits, recorder = self._limits, self._recorder
        recorder.receive(Done, "load", limits.load_timeout_s)
        with contextlib.closing(Arena(init_arguments, [], limits.guard_bytes)) as arena:
            init = Init(arena.spec, self._weight_seed)
            constructed = recorder.request(init, Constructed, "init", limits.init_timeout_s, arena.fd)
        if len(constructed.named) >= MAX_NAMED:
            raise rule_broken("replay_differs", f"the model has {MAX_NAMED} named tensors or more: not all are read")
        self.named = constructed.named
        self.state = _state_of(recorder, constructed.state_bytes, limits)

    def record(self, inputs: list[Any], meanwhile: Callable[[], None], sample: int | None = None) -> Recorded:
        """The record of a call with these inputs, which no trial has. Raises `FaultDetected`.

        `meanwhile`: what this process does while the recorder works. `sample`: as in `Record`.
        """
        limits = self._limits
        with contextlib.closing(Arena(inputs, [], limits.guard_bytes)) as arena:
            self._recorder.send(Record(arena.spec, sample), (arena.fd,))
            arena.unmap()
            del inputs  # which may be large
            meanwhile()
            recorded = self._recorder.receive(Recorded, "call", self._call_timeout_s, MAX_RECORD_BYTES)
        _check_length(recorded.trace)
        check_tensors(recorded.trace, recorded.outputs)
        _check_launches(recorded)
        return recorded

    def begin_end(self) -> None:
        """Have the recorder ended, since no call follows; `end` waits for that. Raises `ZygoteLost`."""
        self._recorder.begin_end()

    def end(self) -> None:
        """End the recorder, and note what it left behind.

        Raises `FaultDetected` if its output was full, which lets anything that it does fail, and so is the first cause.
        """
        try:
            exited = self._recorder.end()
            self.details["cpu_s"] = round(exited.cpu_s, 4)
            self.details["max_rss_bytes"] = exited.max_rss_bytes
            self._left_behind = exited
            if self._recorder.output_bytes:
                self.details["output_tail"] = self._recorder.output_tail()
            if self._recorder.output_bytes >= self._limits.output_bytes:
                message = f"more than {self._limits.output_bytes} bytes were printed"
                raise FaultDetected(Stage.LOADED, Fault.OUTPUT_FLOOD, message)
        finally:
            self._recorder.close()

    def check_left_behind(self) -> None:
        """Raises `FaultDetected` for threads and files that the recorder left at its end."""
        exited = self._left_behind
        assert exited is not None
        if exited.num_threads > 1 and exited.exit_code is None and "background_thread" not in self._relaxed:
            raise rule_broken("background_thread", f"{exited.num_threads - 1} threads were left running")
        if exited.files_left:
            message = f"{exited.files_left} files were left where other evaluations would find them"
            raise FaultDetected(Stage.LOADED, Fault.SANDBOX_VIOLATION, message)


class SecondRecording:
    """A second recorder, which is sent everything at once, and works while the trials run.

    The owner must call `close`.
    """

    def __init__(
        self,
        job: Job,
        leases: Leases,
        deadline: Deadline,
        skipped_configs: Mapping[str, int],
        init_arguments: list[Any],
        inputs: list[Any],
        *,
        all_configs: bool = False,
    ) -> None:
        limits = job.limits
        self._limits = limits
        self._call_timeout_s = limits.call_timeout_s + (limits.compile_timeout_s if all_configs else 0.0)
        self._record: Recorded | None = None
        self._arenas = [Arena(values, [], limits.guard_bytes) for values in (init_arguments, inputs)]
        init, call = self._arenas
        self._recorder = WorkerChannel(leases.second_recorder, limits, deadline, RECORDER)
        self._recorder.send(Load(job.candidate_src, dict(skipped_configs), all_configs), ())
        self._recorder.send(Init(init.spec, derive_seed(job.secret, "weights")), (init.fd,))
        self._recorder.send(Record(call.spec), (call.fd,))
        call.unmap()

    def _recorded(self) -> Recorded:
        """Wait for its record. Raises `FaultDetected` if it fails."""
        if self._record is None:
            limits = self._limits
            self._recorder.receive(Done, "load", limits.load_timeout_s)
            self._recorder.receive(Constructed, "init", limits.init_timeout_s)
            self._record = self._recorder.receive(Recorded, "call", self._call_timeout_s, MAX_RECORD_BYTES)
        return self._record

    def named_with(self, weight_seed: int) -> dict[str, torch.Tensor]:
        """What the model has by name that is constructed once more, with other random weights. Raises as `compare`."""
        self._recorded()
        arena, limits = self._arenas[0], self._limits
        init = Init(arena.spec, weight_seed)
        constructed = self._recorder.request(init, Constructed, "init", limits.init_timeout_s, arena.fd)
        state = _state_of(self._recorder, constructed.state_bytes, limits)
        found = ((one.name, view_of(state, one.place)) for one in constructed.named[:MAX_NAMED])
        return {name: view for name, view in found if view is not None}

    def compare(self, irs: tuple[KernelIr, ...]) -> None:
        """Wait for its record. Raises `FaultDetected` if it fails, or if its IR differs from the first recorder's."""
        again = self._recorded().irs
        for one, two in zip(irs, again, strict=False):
            if one != two:
                raise rule_broken("ir_differs", f"{one.kernel} was compiled to other IR in a second process")
        if len(irs) != len(again):
            raise rule_broken("ir_differs", f"{len(irs)} kernels were compiled, and {len(again)} in a second process")

    def end(self) -> None:
        """Wait until the recorder is gone, so that nothing runs beside what is timed. Raises `ZygoteLost`."""
        self._recorder.end()

    def leave(self) -> None:
        """Do not wait for the recorder's end, since no other is forked. Raises `ZygoteLost`."""
        self._recorder.leave()

    def close(self) -> None:
        """End the recorder, and release its memory."""
        try:
            self._recorder.end_and_close()
        finally:
            for arena in self._arenas:
                arena.close()


def _state_of(recorder: WorkerChannel, sizes: tuple[int, ...], limits: Limits) -> list[torch.Tensor]:
    """The contents of all storages of a constructed model, of these sizes in bytes. Raises `FaultDetected`."""
    if not sizes:
        return []
    needed = sum(sizes) + 2 * limits.guard_bytes * len(sizes)
    if min(sizes) < 0 or needed > limits.memory_bytes:
        message = f"the model holds {len(sizes)} pieces of memory, {needed} bytes with their guard zones"
        raise FaultDetected(Stage.LOADED, Fault.OUT_OF_MEMORY, message, phase="init")
    pieces = [torch.empty(size, dtype=torch.uint8) for size in sizes]
    with contextlib.closing(Arena([], pieces, limits.guard_bytes)) as arena:
        recorder.request(SendState(arena.spec), Done, "init", limits.init_timeout_s, arena.fd)
        return arena.take_outputs()


def form_of(inputs: Any) -> Any:
    """What a call's Python may depend on, as a value that can be compared and hashed."""
    if isinstance(inputs, torch.Tensor):
        return str(inputs.dtype), tuple(inputs.shape), tuple(inputs.stride())
    if isinstance(inputs, list | tuple):
        return type(inputs).__name__, *(form_of(value) for value in inputs)
    return type(inputs).__name__, repr(inputs)


def check_tensors(trace: Trace, outputs: Sequence[Output]) -> None:
    """Check that the tensors of a record can be tensors, and that its outputs are those returned.

    Dtypes are torch's, which are few and read as names. Raises `FaultDetected`.
    """
    num_storages = len(trace.storages)
    for step in trace.steps:
        if isinstance(step, Operator):
            _check_places([*step.arguments, *step.keywords.values(), *step.results], num_storages)
        elif isinstance(step, Launch):
            for way in (step, *step.alternatives):
                _check_places(way.given, num_storages)
        elif max(step.storages, default=-1) >= num_storages:
            raise _unnamed_memory()
    _check_places(trace.outputs, num_storages)
    if len(trace.outputs) != len(outputs) or not all(map(_is_of, trace.outputs, outputs)):
        raise rule_broken("replay_differs", "the outputs of the record are not those that the call returned")


def _is_of(recorded: Place | Opaque, output: Output) -> bool:
    """Whether an output of a record may be one that was returned."""
    form = (recorded.dtype, recorded.shape) if isinstance(recorded, Place) else None
    return form == (output.dtype, output.shape) if output.kind == "Tensor" else form is None


def stand_ins(inputs: list[Any], reference: Reference, seed: int) -> list[Any]:
    """Inputs of the same form with the contents of another draw of the task's."""
    others = iter(tensors_among(reference.inputs(seed)))
    stood_in = _stood_in(inputs, others)
    assert isinstance(stood_in, list)
    return stood_in


def digest(irs: tuple[KernelIr, ...]) -> str:
    """The digest of the IR that gave an answer."""
    text = "\0".join(f"{ir.kernel}\0{ir.text}\0{sorted(ir.options.items())}" for ir in irs)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _stood_in(value: Any, others: Any) -> Any:
    if isinstance(value, torch.Tensor):
        stand_in = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).zero_()
        other = next(others, None)
        if other is not None and other.ndim == value.ndim and other.dtype == value.dtype:
            common = [slice(0, min(one, two)) for one, two in zip(value.shape, other.shape, strict=True)]
            stand_in[tuple(common)] = other[tuple(common)]
        return stand_in
    if isinstance(value, list | tuple):
        return type(value)(_stood_in(item, others) for item in value)
    return value


def _check_places(arguments: Sequence[Argument], num_storages: int) -> None:
    for place in places(list(arguments)):
        if place.dtype not in _DTYPES:
            raise rule_broken("replay_differs", f"the record has a tensor of dtype {place.dtype}, which torch lacks")
        if len(place.shape) != len(place.stride):
            raise rule_broken("replay_differs", "the record has a tensor whose strides are not those of its shape")
        if len(place.shape) > MAX_DIMENSIONS:
            raise rule_broken("replay_differs", f"the record has a tensor of more than {MAX_DIMENSIONS} dimensions")
        if place.storage >= num_storages:
            raise _unnamed_memory()


def _unnamed_memory() -> FaultDetected:
    return rule_broken("replay_differs", "the record has a tensor in memory that it does not name")


def _check_length(trace: Trace) -> None:
    if len(trace.steps) > MAX_STEPS:
        raise rule_broken("replay_differs", f"a call of {len(trace.steps)} steps, at most {MAX_STEPS} are judged")


def _check_launches(recorded: Recorded) -> None:
    """Check what no device would launch, and no recorder records. Raises `FaultDetected`."""
    for ir in recorded.irs:
        wrong = launch_options.violation(ir.options)
        if wrong is not None:
            message = f"a launch with {wrong} ({ir.kernel})"
            raise FaultDetected(Stage.LOADED, Fault.LAUNCH_FAILURE, message, phase="compile", kernel=ir.kernel)
    for launch in recorded.trace.launches:
        if len(launch.alternatives) >= MOST_WAYS:
            message = f"{1 + len(launch.alternatives)} ways to launch {launch.name}, at most {MOST_WAYS} are recorded"
            raise rule_broken("replay_differs", message)
    ways = [way for launch in recorded.trace.launches for way in (launch, *launch.alternatives)]
    for launch in ways:
        if launch.ir is None or not 0 <= launch.ir < len(recorded.irs):
            raise rule_broken("replay_differs", f"the record has no IR of {launch.name}")
        if len(launch.grid) > 3 or any(
            not 0 <= size <= most for size, most in zip(launch.grid, MAX_GRID, strict=False)
        ):
            message = f"a grid of {launch.grid}; at most {MAX_GRID} is possible ({launch.name})"
            raise FaultDetected(Stage.LOADED, Fault.LAUNCH_FAILURE, message, phase="compile", kernel=launch.name)
