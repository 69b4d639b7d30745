"""What a judge and a worker say to each other. Tensors go through shared memory (`arena.py`), never through these.

Invariant: no expected value, seed of an input, or verdict appears here. What comes from a worker may be anything at
all: it is decoded into these types or is a protocol error.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from weir.kernel_eval.ipc.trace import Launch, Trace
from weir.kernel_eval.toolchain.native_source import NativeModule, NativeSource
from weir.kernel_eval.toolchain.ptx_parameters import Layout

Phase = Literal["load", "entry_point", "init", "call", "compile", "replay"]


class TensorSpec(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor in an arena: `offset` in bytes, shape and strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class Scalar(msgspec.Struct, frozen=True, tag="scalar"):
    """An argument that is not a tensor."""

    value: int | float | bool | str | None


class Items(msgspec.Struct, frozen=True, tag="items"):
    """A list or tuple of arguments."""

    kind: Literal["list", "tuple"]
    items: tuple[TensorSpec | Scalar | Items, ...]


Value = TensorSpec | Scalar | Items


class ArenaSpec(msgspec.Struct, frozen=True):
    """A piece of shared memory, whose descriptor travels with the message: arguments, and where answers go."""

    size_bytes: int
    arguments: Items
    outputs: tuple[TensorSpec, ...]
    on_gpu: bool = False


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Judge, before anything else on a GPU: reach it, so that what fails here is not the fault of a candidate."""


class Load(msgspec.Struct, frozen=True, tag=True):
    """Judge: import this. Of autotuned kernels, as many configurations are passed over as no device would run."""

    source: str
    passed_over: dict[str, int] = {}


class Init(msgspec.Struct, frozen=True, tag=True):
    """Judge: construct ModelNew with these arguments, under this seed (of weights only; inputs have others)."""

    arena: ArenaSpec
    weight_seed: int


class Call(msgspec.Struct, frozen=True, tag=True):
    """Judge: call the model with these arguments, and write the answer to the arena."""

    arena: ArenaSpec


class WriteAgain(msgspec.Struct, frozen=True, tag=True):
    """Judge: write the answers of all calls so far once more, each to its own arena."""


class SendState(msgspec.Struct, frozen=True, tag=True):
    """Judge: write the contents of the state, as it was after construction, to this arena's outputs."""

    arena: ArenaSpec


class Replay(msgspec.Struct, frozen=True, tag=True):
    """Judge, to a worker that has seen no candidate: run this trace with these kernels, and write its outputs.

    The arguments of the arena are two lists of tensors: the inputs, and the state.
    """

    kernels: str
    trace: Trace
    arena: ArenaSpec
    codes: tuple[bytes, ...] = ()  # machine code, as launches number it


class TimeReplay(msgspec.Struct, frozen=True, tag=True):
    """Judge, after a `Replay`: run the trace again on this arena's inputs, timed; or so many times, not timed."""

    arena: ArenaSpec
    repeats: int = 0


class Timed(msgspec.Struct, frozen=True, tag=True):
    """Worker: microseconds of the launches and operators, by the device's events."""

    us: float


class Constructed(msgspec.Struct, frozen=True, tag=True):
    """Worker: ModelNew is there, and these are the sizes of all memory that tensors hold now."""

    state_bytes: tuple[int, ...]


class Replayed(msgspec.Struct, frozen=True, tag=True):
    """Worker: the trace was run; for each output, the share of its elements that follow from what kernels stored."""

    coverage: tuple[float, ...]


class Done(msgspec.Struct, frozen=True, tag=True):
    """Worker: loaded, or written (again)."""


class Output(msgspec.Struct, frozen=True):
    """Worker: one output. `kind` is the name of its type; dtype and shape are given for plain tensors."""

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    shares_memory_with_input: bool = False


class Answered(msgspec.Struct, frozen=True, tag=True):
    """Worker: the call returned."""

    outputs: tuple[Output, ...]
    trace: Trace
    overrun: str | None = None  # a guard zone around one of the candidate's own tensors that was written to


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Worker: the candidate raised."""

    phase: Phase
    exception: str  # name of its type; of the cause where Triton's interpreter wrapped it
    message: str
    traceback: str
    in_kernel: bool = False
    os_errno: int | None = None
    out_of_memory: bool = False
    cuda_error: int | None = None  # a code of CUDA's runtime, where torch raised one
    refused_by: Literal["compiler", "shared_memory", "threads"] | None = None  # Triton, on a GPU, before a launch
    trace: Trace | None = None  # where the interpreter lacks something: the call, up to the launch that failed


class InterpreterLacks(Exception):
    """Raised where a trace is run again without the candidate, which could raise this itself: a kernel needs something
    that Triton's interpreter has not. `Failed` has its name."""


class Compile(msgspec.Struct, frozen=True, tag=True):
    """Judge to a compile worker: import this, construct ModelNew, call it, and compile what it would launch.

    Two descriptors: the arena of the constructor's arguments, then that of one call's.
    """

    source: str
    target: str
    init: ArenaSpec
    call: ArenaSpec
    weight_seed: int


class BuiltKernel(msgspec.Struct, frozen=True):
    """Compile worker: a kernel as assembly text (PTX), which the judge has assembled elsewhere."""

    kernel: str
    assembly: str
    shared_bytes: int
    num_warps: int
    num_stages: int


class RefusedKernel(msgspec.Struct, frozen=True):
    """Compile worker: a kernel that cannot be built or launched for the target, and what the compiler says of it."""

    kernel: str
    reason: Literal["compile", "arch", "shared_memory", "launch"]
    message: str


class Build(msgspec.Struct, frozen=True, tag=True):
    """Judge to a builder, which has seen no candidate: compile these launches of these kernels."""

    kernels: str
    launches: tuple[Launch, ...]
    target: str


class Compiled(msgspec.Struct, frozen=True, tag=True):
    """Compile worker, builder: all that was launched. `stopped` names what ended the call early, if anything."""

    built: tuple[BuiltKernel, ...]
    refused: tuple[RefusedKernel, ...]
    stopped: str | None = None


class Collect(msgspec.Struct, frozen=True, tag=True):
    """Judge to a collector: as `Compile`, for a candidate that gives sources to compilers of its own accord."""

    source: str
    target: str
    init: ArenaSpec
    call: ArenaSpec
    weight_seed: int


class Collected(msgspec.Struct, frozen=True, tag=True):
    """Collector: what the candidate wanted compiled."""

    sources: tuple[NativeSource, ...]


class CompileNative(msgspec.Struct, frozen=True, tag=True):
    """Judge to a compiler of CUDA C++ or HIP: these files, this command line, and the names of what is wanted of it."""

    files: dict[str, str]
    command: tuple[str, ...]
    results: tuple[str, ...] = ()


class Written(msgspec.Struct, frozen=True, tag=True):
    """Compiler to judge, when it has ended: what it made, by name."""

    files: dict[str, bytes]


class BuildNative(msgspec.Struct, frozen=True, tag=True):
    """Worker on a GPU to its judge: have this built elsewhere, as a worker starts no program."""

    module: NativeModule


class BuiltNative(msgspec.Struct, frozen=True, tag=True):
    """Judge to a worker: a module of Python (None: there is none), and for each piece its machine code and layouts.

    first: how the judge numbers the first piece.
    """

    extension: bytes | None
    codes: tuple[bytes, ...]
    layouts: tuple[tuple[Layout, ...], ...]
    first: int


class Assemble(msgspec.Struct, frozen=True, tag=True):
    """Judge to an assembler: this text, for this architecture; what ptxas prints is the answer.

    Worker on a GPU to its judge: the same, as a worker starts no program.
    """

    assembly: str
    target: str
    fuses: bool = True  # multiplications with additions


class Opened(msgspec.Struct, frozen=True, tag=True):
    """Assembler to judge: what I am about to become writes to the file whose descriptor is with this."""


class Assembled(msgspec.Struct, frozen=True, tag=True):
    """Judge to a worker: the machine code; None where the assembler refused the text, with what it printed."""

    code: bytes | None
    printed: str


FromJudge = Prepare | Load | Init | SendState | Call | WriteAgain | Replay | TimeReplay
FromWorker = Done | Constructed | Answered | Replayed | Timed | Failed | Compiled | Collected | Assemble | BuildNative
