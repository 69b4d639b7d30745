"""Maps CUDA's error codes to faults. Pure.

The numbers are those of cudaError_t (CUDA runtime API, "Data types used by CUDA Runtime"), which the driver shares. A
code comes from a candidate's process, which could forge it: therefore no code alone is a fault of the server. A code
about the device (`SUSPICIOUS`) counts as a failed launch; the server then examines the device itself.
"""

from __future__ import annotations

from weir.kernel_eval.protocol import Fault

FAULTS = {
    1: Fault.LAUNCH_FAILURE,  # invalid value
    2: Fault.OUT_OF_MEMORY,
    9: Fault.LAUNCH_FAILURE,  # invalid configuration
    98: Fault.UNSUPPORTED_ARCH,  # invalid device function
    200: Fault.UNSUPPORTED_ARCH,  # invalid image
    209: Fault.UNSUPPORTED_ARCH,  # no kernel image for the device
    218: Fault.COMPILE_ERROR,  # invalid PTX
    222: Fault.UNSUPPORTED_ARCH,  # unsupported PTX version
    700: Fault.ILLEGAL_ACCESS,
    701: Fault.LAUNCH_FAILURE,  # out of resources: registers or threads
    702: Fault.TIMEOUT,  # the driver's watchdog
    710: Fault.DEVICE_ASSERT,
    714: Fault.ILLEGAL_ACCESS,  # hardware stack error
    715: Fault.LAUNCH_FAILURE,  # illegal instruction
    716: Fault.MISALIGNED,
    717: Fault.ILLEGAL_ACCESS,  # invalid address space
    718: Fault.ILLEGAL_ACCESS,  # invalid program counter
    719: Fault.LAUNCH_FAILURE,  # unspecified
    720: Fault.LAUNCH_FAILURE,  # cooperative launch too large
}
# driver gone, no device, devices unavailable, uncorrectable memory error, NVLink, not ready, MPS, unknown
SUSPICIOUS = frozenset({3, 4, 46, 100, 101, 214, 220, 226, 802, 803, 804, 805, 806, 999})


def fault_of(code: int) -> Fault | None:
    """The candidate's fault for a CUDA error code; None for a code that no kernel causes."""
    return Fault.LAUNCH_FAILURE if code in SUSPICIOUS else FAULTS.get(code)
