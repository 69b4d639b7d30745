"""The kernels of a record on a GPU: machine code that was made of their IR, loaded at its first launch.

The code comes from a judge, which had it built by a process that holds nothing of the candidate but that IR. A kernel
may do whatever a device allows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from weir.kernel_eval.gpu import cuda_driver, kernel_launch
from weir.kernel_eval.ipc.messages import DeviceKernel
from weir.kernel_eval.ipc.trace import Launch
from weir.kernel_eval.replay.device.parameters import packed
from weir.kernel_eval.replay.ir_launches import LaunchFailed

_ALIGN = 64
_DEVICE = "cuda"
_STATIC_SHARED_BYTES = 48 << 10  # more has to be asked for


class _Block:
    """The bytes of one parameter, aligned as a tensor map has to be; they live as long as this does."""

    def __init__(self, content: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(len(content) + _ALIGN)
        start = ctypes.addressof(self._buffer)
        self.address = start + -start % _ALIGN
        ctypes.memmove(self.address, content, len(content))


class DeviceKernels:
    """The kernels of one record, by the number of their IR."""

    def __init__(self, kernels: Sequence[DeviceKernel | None]) -> None:
        self._kernels = kernels
        self._functions: dict[int, int] = {}

    def has(self, number: int | None) -> bool:
        """Whether the kernel was built."""
        return number is not None and 0 <= number < len(self._kernels) and self._kernels[number] is not None

    def launch(self, launch: Launch, storages: Sequence[torch.Tensor]) -> None:
        """Launch on torch's current stream.

        Raises `LaunchFailed` if there is no code, ValueError for arguments that it does not take, `CudaDriverError`.
        """
        kernel = self._kernels[launch.ir] if launch.ir is not None and self.has(launch.ir) else None
        if kernel is None or launch.ir is None:
            raise LaunchFailed("malformed", launch.name, "the record has no machine code of this launch")
        form = kernel.form
        x, y, z = (*launch.grid, 1, 1, 1)[:3]
        address = 0
        if form.scratch_bytes:  # a later step may use it again, in the stream's order
            size = x * y * z * form.num_ctas * form.scratch_bytes + form.scratch_align
            scratch = torch.empty(size, dtype=torch.uint8, device=_DEVICE)
            address = -(-scratch.data_ptr() // form.scratch_align) * form.scratch_align
        blocks = [_Block(each) for each in packed(kernel, launch, storages, (address, 0))]
        kernel_launch.launch(
            self._function(launch.ir, kernel),
            (x, y, z),
            (ctypes.c_void_p * max(1, len(blocks)))(*(block.address for block in blocks)),
            stream=torch.cuda.current_stream().cuda_stream,
            num_warps=form.num_warps,
            num_ctas=form.num_ctas,
            shared_bytes=form.shared_bytes,
            cooperative=form.cooperative,
            serial=form.serial,
        )

    def _function(self, number: int, kernel: DeviceKernel) -> int:
        if number not in self._functions:
            torch.cuda.synchronize()  # makes the context
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            cuda_driver.call("cuModuleLoadData", ctypes.byref(module), kernel.code)
            cuda_driver.call("cuModuleGetFunction", ctypes.byref(function), module, kernel.form.entry.encode())
            if kernel.form.shared_bytes > _STATIC_SHARED_BYTES:
                kernel_launch.allow_shared_memory(function.value or 0, kernel.form.shared_bytes)
            self._functions[number] = function.value or 0
        return self._functions[number]
