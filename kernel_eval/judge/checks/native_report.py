"""Parses the output of a CUDA C++ compiler into a report of kernels, or into a fault. Pure.

Whether it failed is known from its exit code. The text only decides which fault it is, and whose: if a header of
CUDA's libraries is not installed on this machine, the fault is the server's.
"""

from __future__ import annotations

import re
from typing import Any

from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.toolchain.ptxas_report import parse_usage

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_MISSING = re.compile(r"fatal error: ([^\s:]+): No such file|cannot open source file \"([^\"]+)\"")
# headers of CUDA and ROCm toolkits, by name: with a pattern, a candidate could invent one that no server has
_TOOLKIT = (
    "Python.h cublas.h cublas_v2.h cublas_api.h cublasLt.h cusparse.h cusolverDn.h cusolverSp.h cusolver_common.h "
    "cufft.h curand.h curand_kernel.h nvrtc.h nvToolsExt.h nvtx3/nvToolsExt.h cuda/std/limits cuda/std/complex "
    "thrust/complex.h thrust/device_ptr.h thrust/device_vector.h thrust/execution_policy.h thrust/functional.h "
    "thrust/reduce.h thrust/scan.h thrust/sort.h thrust/transform.h thrust/tuple.h "
    "cub/cub.cuh cub/block/block_load.cuh cub/block/block_radix_sort.cuh cub/block/block_reduce.cuh "
    "cub/block/block_scan.cuh cub/block/block_store.cuh cub/warp/warp_reduce.cuh cub/warp/warp_scan.cuh "
    "rocblas/rocblas.h hipblas/hipblas.h hipcub/hipcub.hpp rocprim/rocprim.hpp rocwmma/rocwmma.hpp"
)
_TOOLKIT_HEADERS = frozenset(_TOOLKIT.split())
_SHARED = re.compile(r"uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)")
_ARCH = re.compile(r"requires \.target sm_\w+|not supported on \.target|Unsupported gpu architecture")
_MESSAGE_CHARS = 4000


def kernels_in(printed: str) -> list[dict[str, Any]]:
    """The resources of each compiled kernel, as ptxas reports them."""
    starts = [*_ENTRY.finditer(printed)]
    ends = [match.start() for match in starts[1:]] + [len(printed)]
    kernels = []
    for start, end in zip(starts, ends, strict=True):
        usage = parse_usage(printed[start.start() : end])
        if usage is not None:
            kernels.append(
                {
                    "kernel": start[1],
                    "registers": usage.registers,
                    "shared_bytes": usage.static_shared_bytes,
                    "stack_bytes": usage.stack_bytes,
                    "spill_bytes": usage.spill_store_bytes + usage.spill_load_bytes,
                }
            )
    return kernels


def refusal(printed: str, name: str, target: str) -> FaultDetected:
    """The fault of a compilation that failed."""
    missing = _MISSING.search(printed)
    header = (missing[1] or missing[2]) if missing else ""
    if header in _TOOLKIT_HEADERS:
        text = f"{name} includes {header}, which is not installed on this server: install CUDA's development headers"
        return FaultDetected(Stage.NOTHING, Fault.UNSUPPORTED, text, phase="compile")
    shared = _SHARED.search(printed)
    if shared is not None:
        used, limit = (int(size, 16) for size in shared.groups())
        text = f"{name} for {target}: {used} bytes of static shared memory, at most {limit} are possible"
        return FaultDetected(Stage.NOTHING, Fault.SHARED_MEM_EXCEEDED, text, phase="compile")
    fault = Fault.UNSUPPORTED_ARCH if _ARCH.search(printed) else Fault.COMPILE_ERROR
    return FaultDetected(Stage.NOTHING, fault, f"{name} for {target}: {_errors(printed)}", phase="compile")


def _errors(printed: str) -> str:
    """The output from the first error on; before it come the reports of kernels that did compile."""
    first = printed.find("error")
    start = printed.rfind("\n", 0, first) + 1 if first >= 0 else 0
    return printed[start : start + _MESSAGE_CHARS].strip()
