"""GPU memory that two processes share through a file descriptor.

Uses the driver's virtual memory management (cuMemCreate and related functions), not cudaIpcGetMemHandle: those handles
need a common PID and network namespace, which a sandbox removes, and expose the allocator's whole block with other
tensors in it. Here each piece of memory is a separate allocation. Structures and numbers are those of cuda.h. Sizes are
bytes.
"""

from __future__ import annotations

import ctypes
import os

import torch

from weir.kernel_eval.gpu import cuda_driver

PINNED, ON_DEVICE, POSIX_FD, READ_WRITE = 1, 1, 1, 3


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class AllocationFlags(ctypes.Structure):
    """CUmemAllocationProp.allocFlags."""

    _fields_ = (
        ("compressionType", ctypes.c_ubyte),
        ("gpuDirectRDMACapable", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class AllocationProp(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("requestedHandleTypes", ctypes.c_int),
        ("location", Location),
        ("win32HandleMetaData", ctypes.c_void_p),
        ("allocFlags", AllocationFlags),
    )


class AccessDesc(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class GpuMemory:
    """Mapped memory of this process's device 0. `fd` is a new descriptor of it, or None if it was attached."""

    device = torch.device("cuda", 0)

    def __init__(self, handle: ctypes.c_ulonglong, size_bytes: int, fd: int | None) -> None:
        self.fd = fd
        self.size_bytes = size_bytes
        self._address = ctypes.c_ulonglong()
        try:
            cuda_driver.call(
                "cuMemAddressReserve", ctypes.byref(self._address), _size(size_bytes), _size(0), _LONG(0), _LONG(0)
            )
            cuda_driver.call("cuMemMap", self._address, _size(size_bytes), _size(0), handle, _LONG(0))
            access = AccessDesc(Location(ON_DEVICE, 0), READ_WRITE)
            cuda_driver.call("cuMemSetAccess", self._address, _size(size_bytes), ctypes.byref(access), _size(1))
        finally:
            cuda_driver.call("cuMemRelease", handle)  # the mapping keeps the memory

    def flat(self, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
        """`count` elements from an offset in bytes, as a storage of their own; shape (count,)."""
        span = _Span(self._address.value + offset, count * dtype.itemsize)
        return torch.as_tensor(span, device=self.device).view(dtype)

    def close(self) -> None:
        """Unmap the memory, which is freed when all processes have. Its tensors must not be used afterwards."""
        if self._address.value:
            torch.cuda.synchronize()
            cuda_driver.call("cuMemUnmap", self._address, _size(self.size_bytes))
            cuda_driver.call("cuMemAddressFree", self._address, _size(self.size_bytes))
            self._address = ctypes.c_ulonglong()


class _Span:
    """A span of memory in the form from which torch makes a tensor without a copy."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def allocate(num_bytes: int) -> GpuMemory:
    """Allocate at least `num_bytes`, rounded up to the device's granularity. Raises `CudaDriverError`."""
    torch.cuda.synchronize()  # makes the context
    prop = AllocationProp(type=PINNED, requestedHandleTypes=POSIX_FD, location=Location(ON_DEVICE, 0))
    granularity, handle, fd = ctypes.c_size_t(), ctypes.c_ulonglong(), ctypes.c_int(-1)
    cuda_driver.call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(prop), ctypes.c_int(0))
    size_bytes = rounded_up(num_bytes, granularity.value)
    cuda_driver.call("cuMemCreate", ctypes.byref(handle), _size(size_bytes), ctypes.byref(prop), _LONG(0))
    cuda_driver.call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, ctypes.c_int(POSIX_FD), _LONG(0))
    return GpuMemory(handle, size_bytes, fd.value)


def attach(fd: int, size_bytes: int) -> GpuMemory:
    """Map memory that another process allocated, and close the descriptor. Raises `CudaDriverError`."""
    torch.cuda.synchronize()
    handle = ctypes.c_ulonglong()
    try:
        cuda_driver.call(
            "cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), ctypes.c_int(POSIX_FD)
        )
    finally:
        os.close(fd)
    return GpuMemory(handle, size_bytes, None)


def rounded_up(num_bytes: int, granularity: int) -> int:
    """The next multiple of the granularity, at least one."""
    return max(1, -(-num_bytes // granularity)) * granularity


_LONG = ctypes.c_ulonglong
_size = ctypes.c_size_t
