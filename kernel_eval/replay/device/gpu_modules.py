"""Loads native code on a GPU, and launches its kernels as a trace records, with the addresses of this process.

The code comes from a judge, which had it built. Its kernels may do whatever a device allows.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import torch

from weir.kernel_eval.gpu import cuda_driver
from weir.kernel_eval.ipc.trace import NativeLaunch

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class GpuModules:
    """Pieces of machine code, numbered as in launches; each is loaded at its first use."""

    def __init__(self, codes: Sequence[bytes]) -> None:
        self._codes = codes
        self._modules: dict[int, ctypes.c_void_p] = {}
        self._functions: dict[tuple[int, str], ctypes.c_void_p] = {}

    def launch(self, launch: NativeLaunch, addresses: Sequence[int]) -> None:
        """Launch on torch's current stream. `addresses` are those of the trace's storages. Raises `CudaDriverError`."""
        function = self._function(launch.module, launch.kernel)
        if launch.shared_bytes:
            cuda_driver.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, ctypes.c_int(launch.shared_bytes))
        block = ctypes.create_string_buffer(parameters_at(launch, addresses), max(1, len(launch.parameters)))
        start = ctypes.addressof(block)
        each = (ctypes.c_void_p * max(1, len(launch.offsets)))(*(start + offset for offset in launch.offsets))
        sizes = [ctypes.c_uint(size) for size in (*launch.grid, *launch.block, launch.shared_bytes)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if launch.cooperative:
            cuda_driver.call("cuLaunchCooperativeKernel", function, *sizes, stream, each)
        else:
            cuda_driver.call("cuLaunchKernel", function, *sizes, stream, each, None)

    def _function(self, number: int, kernel: str) -> ctypes.c_void_p:
        if (number, kernel) not in self._functions:
            function = ctypes.c_void_p()
            cuda_driver.call("cuModuleGetFunction", ctypes.byref(function), self._module(number), kernel.encode())
            self._functions[number, kernel] = function
        return self._functions[number, kernel]

    def _module(self, number: int) -> ctypes.c_void_p:
        if number not in self._modules:
            torch.cuda.synchronize()  # makes the context
            module = ctypes.c_void_p()
            cuda_driver.call("cuModuleLoadData", ctypes.byref(module), self._codes[number])
            self._modules[number] = module
        return self._modules[number]


def parameters_at(launch: NativeLaunch, addresses: Sequence[int]) -> bytes:
    """The parameters of a launch, with its pointers adjusted to storages at `addresses`."""
    parameters = bytearray(launch.parameters)
    for pointer in launch.pointers:
        struct.pack_into("<Q", parameters, pointer.at, addresses[pointer.storage] + pointer.offset)
    return bytes(parameters)
