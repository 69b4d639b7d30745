"""Has the judge build extensions and kernels of CUDA C++ for a worker on a GPU, which cannot start a compiler.

The worker loads the results, and records their launches. Only their replay without the candidate, from the same machine
code, counts as evidence.
"""

from __future__ import annotations

import ctypes
import importlib.util
import socket
import struct
import types
from pathlib import Path
from typing import Any

import msgspec
import torch

from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import BuildNative, BuiltNative
from weir.kernel_eval.replay.device.gpu_modules import GpuModules
from weir.kernel_eval.toolchain.native_source import NativeModule
from weir.kernel_eval.toolchain.ptx_parameters import Layout, Parameter
from weir.kernel_eval.worker.extension_calls import ExtensionCalls
from weir.kernel_eval.worker.native_recorder import NativeRecorder
from weir.kernel_eval.worker.recorder import Recorder


class RemoteCompiler:
    """The compiler of one candidate."""

    def __init__(self, channel: socket.socket, recorder: Recorder, folder: str) -> None:
        self._channel = channel
        self._folder = folder
        self._recorder = recorder
        self._recorders: list[NativeRecorder] = []

    def install(self) -> None:
        """Replace torch's extension compilers in this process."""
        ExtensionCalls(self._build).install()

    def _build(self, module: NativeModule) -> Any:
        send(self._channel, BuildNative(module))
        built, _ = receive(self._channel, BuiltNative)
        records = NativeRecorder(self._recorder, built)
        if built.extension is not None:
            return self._extension(module.name, built, records)
        return LoadedKernel(layout_of(module.kernel, built.layouts[0]), built.codes[0], records)

    def _extension(self, name: str, built: BuiltNative, records: NativeRecorder) -> types.ModuleType:
        path = f"{self._folder}/{name}_{built.first}.so"
        Path(path).write_bytes(built.extension or b"")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        records.listen(path)
        self._recorders.append(records)
        return loaded


class LoadedKernel:
    """A kernel as `torch.cuda._compile_kernel` returns it; numbers are passed in the size that the kernel declares."""

    def __init__(self, layout: Layout, code: bytes, records: NativeRecorder) -> None:
        self._layout = layout
        self._modules = GpuModules([code])
        self._records = records

    def __call__(
        self,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        args: Any = None,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch it."""
        parameters = packed(self._layout, list(args or ()))
        recorded = self._records.launched(self._layout.kernel, grid, block, shared_mem, parameters)
        with torch.cuda.stream(stream):
            self._modules.launch(msgspec.structs.replace(recorded, module=0, pointers=()), [])

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Nothing to do: every launch names its shared memory."""


def layout_of(name: str, layouts: tuple[Layout, ...]) -> Layout:
    """The kernel of that name, plain or mangled. Raises AttributeError unless there is exactly one."""
    mangled = f"_Z{len(name)}{name}"
    matching = [layout for layout in layouts if layout.kernel == name or layout.kernel.startswith(mangled)]
    if len(matching) != 1:
        known = ", ".join(layout.kernel for layout in layouts) or "none"
        raise AttributeError(f"{len(matching)} kernels are called {name!r}, expected one; the source has {known}")
    return matching[0]


def packed(layout: Layout, arguments: list[Any]) -> bytes:
    """The arguments in the device's layout. Raises TypeError for a wrong number or type."""
    if len(arguments) != len(layout.parameters):
        raise TypeError(f"{layout.kernel} takes {len(layout.parameters)} arguments, was given {len(arguments)}")
    block = bytearray(layout.size_bytes)
    for parameter, argument in zip(layout.parameters, arguments, strict=True):
        block[parameter.offset : parameter.offset + parameter.size] = _bytes_of(argument, parameter)
    return bytes(block)


def _bytes_of(argument: Any, parameter: Parameter) -> bytes:
    if isinstance(argument, torch.Tensor):
        argument = argument.data_ptr()
    if isinstance(argument, float):
        return struct.pack("<f" if parameter.size == ctypes.sizeof(ctypes.c_float) else "<d", argument)
    if isinstance(argument, int):
        return (argument & ((1 << 8 * parameter.size) - 1)).to_bytes(parameter.size, "little")
    raise TypeError(f"an argument of type {type(argument).__name__}; expected a tensor, an int or a float")
