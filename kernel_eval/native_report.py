"""What a compiler of CUDA C++ said, made into figures or a fault. Pure.

That it failed is known from its exit code; its text decides only which of the candidate's faults it is, and whether it
is one at all: a header of CUDA's libraries that this machine lacks is ours.
"""

from __future__ import annotations

import re
from typing import Any

from weir.kernel_eval.judgement import Found
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.ptxas_report import parse_usage
from weir.kernel_eval.reward import Stage

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_MISSING = re.compile(r"fatal error: ([^\s:]+): No such file|cannot open source file \"([^\"]+)\"")
_LIBRARY_HEADERS = re.compile(
    r"Python\.h|(cublas|cusparse|cusolver|cufft|curand|cudnn|nccl|nvtx|nvToolsExt|nvrtc|cupti|cusparseLt|cutensor)\w*"
    r"([./].*)?\.h(pp)?|(cutlass|cute|nvtx3|cudnn|thrust|cub|cuda/std|rocblas|hipblas|hipcub|rocprim|rocwmma|ck)/.*"
)
_SHARED = re.compile(r"uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)")
_ARCH = re.compile(r"requires \.target sm_\w+|not supported on \.target|Unsupported gpu architecture")
_MESSAGE_CHARS = 4000


def kernels_in(printed: str) -> list[dict[str, Any]]:
    """For each kernel that was compiled: what ptxas said it needs."""
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


def refusal(printed: str, name: str, target: str) -> Found:
    """Why a compiler that ended with an error did so."""
    missing = _MISSING.search(printed)
    header = (missing[1] or missing[2]) if missing else ""
    if header and _LIBRARY_HEADERS.fullmatch(header):
        text = f"{name} includes {header}, which is not installed on this server: install CUDA's development headers"
        return Found(Stage.NOTHING, Fault.UNSUPPORTED, text, phase="compile")
    shared = _SHARED.search(printed)
    if shared is not None:
        used, limit = (int(size, 16) for size in shared.groups())
        text = f"{name} for {target}: {used} bytes of static shared memory, at most {limit} are possible"
        return Found(Stage.NOTHING, Fault.SHARED_MEM_EXCEEDED, text, phase="compile")
    fault = Fault.UNSUPPORTED_ARCH if _ARCH.search(printed) else Fault.COMPILE_ERROR
    return Found(Stage.NOTHING, fault, f"{name} for {target}: {_errors(printed)}", phase="compile")


def _errors(printed: str) -> str:
    """From the first error on: what comes before are figures of kernels that did compile."""
    first = printed.find("error")
    start = printed.rfind("\n", 0, first) + 1 if first >= 0 else 0
    return printed[start : start + _MESSAGE_CHARS].strip()
