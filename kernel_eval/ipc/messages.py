"""The messages between a judge and its workers. Tensors go through shared memory (`tensor_arena.py`) instead.

Invariant: no expected value, seed of an input, or verdict appears here. A worker may send arbitrary bytes: they are
decoded into these types, or are a protocol error.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from weir.kernel_eval.ipc.trace import Argument, Place, Trace
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
    """A piece of shared memory, whose descriptor travels with the message: arguments, and space for outputs."""

    size_bytes: int
    arguments: Items
    outputs: tuple[TensorSpec, ...]
    on_gpu: bool = False


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Judge, first message on a GPU: initialise it. A failure here is not the fault of a candidate."""


class Load(msgspec.Struct, frozen=True, tag=True):
    """Judge: import this. `skipped_configs`: for autotuned kernels, how many configurations the target refused.

    `all_configs`: record each configuration of autotuned kernels, for a GPU that takes the fastest.
    """

    source: str
    skipped_configs: dict[str, int] = {}
    all_configs: bool = False


class Init(msgspec.Struct, frozen=True, tag=True):
    """Judge: construct ModelNew with these arguments and this seed, which is for weights only."""

    arena: ArenaSpec
    weight_seed: int


class Call(msgspec.Struct, frozen=True, tag=True):
    """Judge: call the model with these arguments, and write its outputs to the arena."""

    arena: ArenaSpec


class WriteAgain(msgspec.Struct, frozen=True, tag=True):
    """Judge: write the outputs of all calls so far again, each to the arena of its call."""


class SendState(msgspec.Struct, frozen=True, tag=True):
    """Judge: write the state of the constructed model to this arena's outputs."""

    arena: ArenaSpec


class Timed(msgspec.Struct, frozen=True, tag=True):
    """Player on a GPU: microseconds of the launches and operators, by the device's events."""

    us: float


class Record(msgspec.Struct, frozen=True, tag=True):
    """Judge to a recorder: call the model with these arguments, compile what it launches, and run no kernel.

    `sample`: record some other configurations of autotuned kernels, too, which are chosen by this seed.
    """

    arena: ArenaSpec
    sample: int | None = None


class KernelIr(msgspec.Struct, frozen=True):
    """A kernel as Triton's front end compiled it for one launch: TTIR, with the options of its compilation."""

    kernel: str  # as `Launch.name`
    text: str
    options: dict[str, int | float | bool | str | None]

    @property
    def num_warps(self) -> int:
        """Warps per program."""
        return int(self.options.get("num_warps") or 1)


class TensorMap(msgspec.Struct, frozen=True):
    """How a kernel reads the tensor of a descriptor by the tensor memory accelerator, as Triton's compiler has it."""

    swizzle: int
    elem_size: int
    elem_type: int
    block_size: tuple[int, ...]
    fp4_padded: bool = False


class LaunchForm(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch of compiled code needs beside the code and its arguments.

    types: of the arguments of the IR's function · scratch_bytes: memory that each program is given.
    """

    entry: str
    types: tuple[str, ...]
    num_warps: int
    num_ctas: int
    shared_bytes: int
    scratch_bytes: int
    scratch_align: int
    cooperative: bool
    serial: bool
    maps: tuple[TensorMap, ...]


class DeviceKernel(msgspec.Struct, frozen=True):
    """A kernel's machine code, how it is launched, and the sizes of the parameters that the code declares."""

    form: LaunchForm
    parameters: tuple[int, ...]
    code: bytes


class LoadRecord(msgspec.Struct, frozen=True, tag=True):
    """Judge to a player: read this record. Its number is the count of those before it.

    On a GPU there is no IR, but machine code: of Triton's kernels, by the number of their IR (None: it was not built),
    and of native code, as launches number it.
    """

    trace: Trace
    irs: tuple[KernelIr, ...]
    kernels: tuple[DeviceKernel | None, ...] = ()
    codes: tuple[bytes, ...] = ()


class Play(msgspec.Struct, frozen=True, tag=True):
    """Judge to a player: run a record on this arena's inputs, and write its outputs.

    The arguments of the arena are two lists of tensors: the inputs, and the state. `exact_dots`: products of float32
    are exact, otherwise their factors are rounded as on a device. `marks`: report which elements of the outputs kernels
    made. `state`: whether the call begins with the arena's and is forgotten ("given"), begins with it and is the first
    of several in succession ("kept"), or begins with what the last of these left ("continued"). `order`: without a GPU,
    of what a device runs in any order (`RunLimits`).
    """

    record: int
    arena: ArenaSpec
    exact_dots: bool = True
    marks: bool = True
    state: Literal["given", "kept", "continued"] = "given"
    order: int = 0


class Played(msgspec.Struct, frozen=True, tag=True):
    """Player: the record was run. `coverage` is empty without `marks`.

    `chosen`: on a GPU, for each launch of an autotuned kernel, the number of the IR that it took.
    """

    coverage: tuple[float, ...]  # for each output, the share of its elements that depend on what kernels stored
    changed_inputs: tuple[int, ...]  # the inputs whose contents differ now
    num_rounded_dots: int = 0  # products of float32 that a device rounds
    chosen: tuple[int, ...] = ()
    changed_state: tuple[int, ...] = ()  # the pieces of the state whose contents differ from the arena's now


class TimePlay(msgspec.Struct, frozen=True, tag=True):
    """Judge to a player on a GPU: run a record on this arena's inputs, once and timed, or `repeats` times untimed."""

    record: int
    arena: ArenaSpec
    repeats: int = 0


MAX_NAMED = 1000  # tensors of a model that are sent by name


class NamedPlace(msgspec.Struct, frozen=True, array_like=True):
    """A tensor that a model holds, by its name there. Its place names a storage by its position in the state."""

    name: str
    place: Place


class Constructed(msgspec.Struct, frozen=True, tag=True):
    """Worker: ModelNew was constructed; the sizes of all storages that tensors hold now, and its named tensors."""

    state_bytes: tuple[int, ...]
    named: tuple[NamedPlace, ...] = ()


class Done(msgspec.Struct, frozen=True, tag=True):
    """Worker: the request was carried out, and has no result."""


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
    is_sequence: bool = False  # a list or a tuple was returned


class Specialized(msgspec.Struct, frozen=True):
    """What Triton's front end makes a kernel's IR of, beside its source and options: as `ASTSource` of Triton has it.

    Constants and hints are of a parameter, by its position, or of a part of one, by a path.
    """

    kernel: str
    line: int
    signature: dict[str, str]  # type by parameter
    constants: tuple[tuple[tuple[int, ...], Argument], ...]
    hints: tuple[tuple[tuple[int, ...], tuple[tuple[str, int], ...]], ...]


class Recorded(msgspec.Struct, frozen=True, tag=True):
    """Recorder: the call returned. Its launches name their IR by position, and so does `made_of`.

    `num_failed`: how many configurations of autotuned kernels raised an error while they were recorded.
    """

    outputs: tuple[Output, ...]
    trace: Trace
    irs: tuple[KernelIr, ...]
    made_of: tuple[Specialized | None, ...] = ()  # None: of something that cannot be sent
    num_failed: int = 0
    is_sequence: bool = False  # a list or a tuple was returned


class Recompile(msgspec.Struct, frozen=True, tag=True):
    """Judge to a recompiler, which has seen nothing else of the candidate: compile kernels of this module to IR."""

    source: str
    kernels: tuple[Specialized, ...]
    options: tuple[dict[str, int | float | bool | str | None], ...]  # of each kernel
    target: str


class Recompiled(msgspec.Struct, frozen=True, tag=True):
    """Recompiler: the IR of each kernel, or, of the first that it could not compile, why."""

    texts: tuple[str, ...]
    failure: str = ""


# why a kernel did not run. By Triton before a launch: compiler, arch, shared_memory, threads. In a recorder: host_read
# (the model asks for a result of a kernel). In a player, whose process holds no candidate: the rest
Refusal = Literal[
    "compiler",
    "arch",
    "shared_memory",
    "threads",
    "host_read",
    "out_of_bounds",
    "misaligned",
    "assertion",
    "unsupported",
    "malformed",
    "too_much",
    "order",
    "steps",
]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Worker, recorder, player: it raised."""

    phase: Phase
    exception: str  # name of its type
    message: str
    traceback: str
    os_errno: int | None = None
    out_of_memory: bool = False
    cuda_error: int | None = None  # a code of CUDA's runtime, where torch raised one
    refused_by: Refusal | None = None
    kernel: str = ""  # which kernel was refused, as `Launch.name`


class BuiltKernel(msgspec.Struct, frozen=True):
    """Builder: a kernel as assembly text (PTX), which another process assembles, and its IR as the compiler read it.

    `number`: its position among the kernels that were to be built.
    """

    number: int
    kernel: str
    ir: str
    assembly: str
    shared_bytes: int
    num_warps: int
    num_stages: int
    form: LaunchForm


class RefusedKernel(msgspec.Struct, frozen=True):
    """Builder: a kernel that cannot be built or launched for the target, with the compiler's message."""

    number: int
    kernel: str
    reason: Literal["compile", "arch", "shared_memory", "launch"]
    message: str


class Build(msgspec.Struct, frozen=True, tag=True):
    """Judge to a builder, which has run no code of a candidate: compile these kernels for a target.

    `optional`: those that may be refused, by number; they come last, and as many are compiled as `optional_s` allows.
    """

    irs: tuple[KernelIr, ...]
    target: str
    optional: frozenset[int] = frozenset()
    optional_s: float = 0.0


class Compiled(msgspec.Struct, frozen=True, tag=True):
    """Builder: the kernels, up to the first that was refused and had to be built."""

    built: tuple[BuiltKernel, ...]
    refused: tuple[RefusedKernel, ...]


class Collect(msgspec.Struct, frozen=True, tag=True):
    """Judge to a collector: import this, construct ModelNew, call it, and collect what it gives to compilers.

    Two descriptors: the arena of the constructor's arguments, then that of one call's.
    """

    source: str
    target: str
    init: ArenaSpec
    call: ArenaSpec
    weight_seed: int


class Collected(msgspec.Struct, frozen=True, tag=True):
    """Collector: the sources that the candidate gave to compilers."""

    sources: tuple[NativeSource, ...]


class CompileNative(msgspec.Struct, frozen=True, tag=True):
    """Judge to a compiler of CUDA C++ or HIP: files, command line, and the names of the files to return."""

    files: dict[str, str]
    command: tuple[str, ...]
    results: tuple[str, ...] = ()


class Written(msgspec.Struct, frozen=True, tag=True):
    """Compiler to judge, when it has ended: the files that it made, by name."""

    files: dict[str, bytes]


class BuildNative(msgspec.Struct, frozen=True, tag=True):
    """Worker on a GPU to its judge: compile this, since a worker cannot start programs."""

    module: NativeModule


class BuiltNative(msgspec.Struct, frozen=True, tag=True):
    """Judge to a worker: a Python extension (None if there is none), and the machine code and layouts of each piece.

    `first` is the judge's number of the first piece.
    """

    extension: bytes | None
    codes: tuple[bytes, ...]
    layouts: tuple[tuple[Layout, ...], ...]
    first: int


class Assemble(msgspec.Struct, frozen=True, tag=True):
    """Judge to an assembler: assemble this text for this architecture; the output of ptxas is the reply.

    Also a GPU worker to its judge, since a worker cannot start programs.
    """

    assembly: str
    target: str
    fuses: bool = True  # fuse multiplications with additions


class Opened(msgspec.Struct, frozen=True, tag=True):
    """Assembler to judge, before exec, with the descriptor of the file that ptxas will write."""


class Assembled(msgspec.Struct, frozen=True, tag=True):
    """Judge to a worker: the machine code (None if the assembler refused the text), and the assembler's output."""

    code: bytes | None
    printed: str


FromJudge = Prepare | Load | Init | SendState | Call | WriteAgain
ToRecorder = Load | Init | SendState | Record
ToPlayer = Prepare | LoadRecord | Play | TimePlay
_Recordings = Constructed | Answered | Recorded | Recompiled
_Replies = Done | _Recordings | Played | Timed | Failed | Compiled | Collected
FromWorker = _Replies | Assemble | BuildNative
