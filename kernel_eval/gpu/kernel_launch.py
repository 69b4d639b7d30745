"""Launches of machine code by the driver (`cuLaunchKernelEx`), with the attributes that Triton's own launcher gives.

Numbers and structures are those of cuda.h.
"""

from __future__ import annotations

import ctypes
from typing import Any

from weir.kernel_eval.gpu import cuda_driver

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PREFER_SHARED = 1  # CU_FUNC_CACHE_PREFER_SHARED
_NON_PORTABLE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_COOPERATIVE, _CLUSTER, _CLUSTER_POLICY, _SERIALIZATION = 2, 4, 5, 6  # of CUlaunchAttributeID
_SPREAD = 1  # CU_CLUSTER_SCHEDULING_POLICY_SPREAD


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint), ("padding", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint),
    )


def launch(
    function: int,
    grid: tuple[int, int, int],
    parameters: Any,
    *,
    stream: int,
    num_warps: int,
    num_ctas: int,
    shared_bytes: int,
    cooperative: bool,
    serial: bool,
) -> None:
    """Launch a function of a loaded module; nothing for an empty grid. Raises `CudaDriverError`.

    `parameters`: the addresses of its parameters · `serial`: the next launch may begin before this one ends.
    """
    x, y, z = grid
    if not x * y * z > 0:
        return
    attributes = _attributes(num_ctas, cooperative=cooperative, serial=serial)
    if num_ctas == 16:
        cuda_driver.call("cuFuncSetAttribute", ctypes.c_void_p(function), _NON_PORTABLE_CLUSTERS, 1)
    config = _Config((x * num_ctas, y, z), (32 * num_warps, 1, 1), shared_bytes, stream, attributes, len(attributes))
    cuda_driver.call("cuLaunchKernelEx", ctypes.byref(config), ctypes.c_void_p(function), parameters, None)


def allow_shared_memory(function: int, num_bytes: int) -> None:
    """Let a function be launched with so much dynamic shared memory. Raises `CudaDriverError`."""
    cuda_driver.call("cuFuncSetCacheConfig", ctypes.c_void_p(function), _PREFER_SHARED)
    cuda_driver.call("cuFuncSetAttribute", ctypes.c_void_p(function), _MAX_DYNAMIC_SHARED, ctypes.c_int(num_bytes))


def _attributes(num_ctas: int, *, cooperative: bool, serial: bool) -> Any:
    found: list[tuple[int, tuple[int, ...]]] = []
    if serial:
        found.append((_SERIALIZATION, (1,)))
    if cooperative:
        found.append((_COOPERATIVE, (1,)))
    if num_ctas != 1:
        found += [(_CLUSTER, (num_ctas, 1, 1)), (_CLUSTER_POLICY, (_SPREAD,))]
    return (_Attribute * len(found))(*(_Attribute(number, 0, value) for number, value in found))
