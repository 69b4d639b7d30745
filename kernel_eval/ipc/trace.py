"""The trace of one call of a candidate: launches of kernels, and torch operators between them.

A trace is a small program over storages, recorded in the candidate's process and therefore untrusted: a judge checks
its steps (`provenance.py`), and has it played on inputs that the candidate has never seen, in a process that holds
none of the candidate's code but its kernels: without a GPU their IR (`replay/player.py`), on one machine code that was
made of it (`replay/device/player.py`). It contains no contents of tensors. Offsets, shapes and strides count elements,
sizes bytes; in launches of native code everything counts bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

MOST_WAYS = 64
"""To make one launch: configurations of an autotuned kernel that a recorder tries, and a judge takes."""
StorageKind = Literal["input", "state", "earlier", "fresh", "remade", "unknown"]
# negative numbers are no positions: as an index they would be a second name of a storage, which no analysis follows
Count = Annotated[int, msgspec.Meta(ge=0)]


class Storage(msgspec.Struct, frozen=True, array_like=True):
    """A piece of memory. `index` counts the inputs of the call, or the pieces of state after construction.

    fresh: made by an operator of this call · earlier: made in an earlier call · remade: that too, by steps which this
    record repeats · unknown: made outside of the record.
    """

    kind: StorageKind
    index: Count
    size_bytes: Count


class Place(msgspec.Struct, frozen=True, tag="p", array_like=True):
    """A tensor: where it lies in a storage, which is named by its position in the trace."""

    storage: Count
    dtype: str
    shape: tuple[Count, ...]
    stride: tuple[Count, ...]
    offset: Count


class Plain(msgspec.Struct, frozen=True, tag="v", array_like=True):
    """A number, a string, or nothing."""

    value: int | float | bool | str | None


class Named(msgspec.Struct, frozen=True, tag="n", array_like=True):
    """A dtype or memory format of torch, a dtype of Triton, or a kernel that is passed as an argument."""

    kind: Literal["torch", "triton", "kernel"]
    name: str


_LIKE, _NEW = "empty_like zeros_like ones_like full_like", "new_empty new_empty_strided new_zeros new_ones new_full"
OF_A_FORM = frozenset(f"{_LIKE} {_NEW}".split())
"""Operators of torch, by name, that take no more of their first argument than its form."""
EXTENSION = "extension"  # in place of an operator's name: an action of a candidate's extension, named by its argument
DEVICE = Named("torch", "device")  # the device of the evaluation


class Many(msgspec.Struct, frozen=True, tag="m", array_like=True):
    """A list or tuple of arguments."""

    kind: Literal["list", "tuple"]
    items: tuple[Place | Plain | Named | Many | Descriptor | Opaque, ...]


class Descriptor(msgspec.Struct, frozen=True, tag="d", array_like=True):
    """A tensor descriptor that was made on the host."""

    base: Place
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str


class Opaque(msgspec.Struct, frozen=True, tag="o", array_like=True):
    """An argument of a type that cannot be replayed, by its name."""

    kind: str


Argument = Place | Plain | Named | Many | Descriptor | Opaque


class Operator(msgspec.Struct, frozen=True, tag="op", array_like=True):
    """An operator of torch, by its full name, that made or changed a tensor."""

    name: str
    arguments: tuple[Argument, ...]
    keywords: dict[str, Argument]
    results: tuple[Place, ...]


def operator_name(step: Operator) -> str:
    """An operator of torch's own without its namespace and overload; that of another namespace as it is."""
    return step.name.split(".")[1] if step.name.startswith("aten.") else step.name


class Launch(msgspec.Struct, frozen=True, tag="launch", array_like=True):
    """A kernel, its grid, all of its arguments by name, and the options of its launch (num_warps and the like).

    A launch that was compiled and did not run names its IR by position among those of the record, with the arguments
    of the IR's function, in order, and nothing else. `alternatives`: the same launch with other configurations of an
    autotuned kernel, of which a GPU takes the fastest.
    """

    kernel: str
    line: int
    grid: tuple[int, ...]
    arguments: dict[str, Argument]
    options: dict[str, Argument] = {}
    ir: int | None = None
    ir_arguments: tuple[Argument, ...] = ()
    alternatives: tuple[Launch, ...] = ()

    @property
    def name(self) -> str:
        """Its name in results: the kernel and the line where it starts."""
        return f"{self.kernel}:{self.line}"

    @property
    def storages(self) -> set[int]:
        """The storages that it may touch, by position in the trace."""
        return {place.storage for place in places(self.given)}

    @property
    def given(self) -> list[Argument]:
        """All of its arguments."""
        return [*self.arguments.values(), *self.options.values(), *self.ir_arguments]


class Pointer(msgspec.Struct, frozen=True, array_like=True):
    """Eight bytes at `at` in the parameters of a launch that are an address, `offset` bytes into a storage."""

    at: int
    storage: Count
    offset: int


class NativeLaunch(msgspec.Struct, frozen=True, tag="native", array_like=True):
    """A launch of a CUDA C++ kernel, by its name in machine code, with its parameters as the device gets them.

    module: the number of the piece that was built for the candidate · offsets: where each parameter starts · opaque:
    the reason why it cannot be replayed, if there is one.
    """

    module: int
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    parameters: bytes
    offsets: tuple[int, ...]
    pointers: tuple[Pointer, ...]
    cooperative: bool = False
    opaque: str | None = None

    @property
    def name(self) -> str:
        """Its name in results."""
        return self.kernel

    @property
    def storages(self) -> set[int]:
        """The storages that it may touch, by position in the trace."""
        return {pointer.storage for pointer in self.pointers}


Step = Operator | Launch | NativeLaunch


class Trace(msgspec.Struct, frozen=True, array_like=True):
    """The record of one call. `num_repeated`: how many steps are those of earlier calls, which come first."""

    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Place | Opaque, ...]
    num_repeated: Count = 0

    @property
    def launches(self) -> list[Launch]:
        """The launches of Triton, in order."""
        return [step for step in self.steps if isinstance(step, Launch)]

    @property
    def launched(self) -> list[str]:
        """The names of all kernels that were launched, in order."""
        return [step.name for step in self.steps if not isinstance(step, Operator)]


def places(arguments: tuple[Argument, ...] | list[Argument]) -> list[Place]:
    """All tensors among arguments."""
    tensors: list[Place] = []
    for argument in arguments:
        if isinstance(argument, Place):
            tensors.append(argument)
        elif isinstance(argument, Descriptor):
            tensors.append(argument.base)
        elif isinstance(argument, Many):
            tensors.extend(places(argument.items))
    return tensors
