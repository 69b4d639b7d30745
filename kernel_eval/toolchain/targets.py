"""The GPUs that kernels can be compiled for on a machine without one, by the name of their architecture.

Figures are from the CUDA programming guide's table of compute capabilities and the vendor's data sheets. They are the
device properties that a candidate sees on a machine without a GPU.
"""

from __future__ import annotations

import msgspec


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One architecture, and a device with it."""

    name: str  # as in sm_90
    device_name: str
    num_multiprocessors: int
    max_shared_bytes: int  # per block
    memory_bytes: int
    l2_bytes: int

    @property
    def arch(self) -> int:
        """The number of the architecture: 90."""
        return int(self.name.removeprefix("sm_"))

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability: (9, 0)."""
        return divmod(self.arch, 10)


_KB, _MB, _GB = 1 << 10, 1 << 20, 1 << 30
TARGETS = {
    name: Target(
        name=name,
        device_name=device,
        num_multiprocessors=multiprocessors,
        max_shared_bytes=shared_kb * _KB,
        memory_bytes=memory_gb * _GB,
        l2_bytes=l2_mb * _MB,
    )
    for name, device, multiprocessors, shared_kb, memory_gb, l2_mb in (
        ("sm_80", "NVIDIA A100-SXM4-80GB", 108, 163, 80, 40),
        ("sm_86", "NVIDIA A10", 72, 99, 24, 6),
        ("sm_89", "NVIDIA L40S", 142, 99, 48, 96),
        ("sm_90", "NVIDIA H100 80GB HBM3", 132, 227, 80, 50),
        ("sm_100", "NVIDIA B200", 148, 227, 180, 126),
    )
}
DEFAULT_TARGET = "sm_90"


def named(name: str) -> Target:
    """The target of that name; for an unlisted architecture, the default target under its name."""
    return TARGETS.get(name) or msgspec.structs.replace(TARGETS[DEFAULT_TARGET], name=name, device_name=name)


# Limits of every CUDA device: a launch beyond them fails there, though the interpreter would run it.
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_THREADS_PER_BLOCK = 1024
