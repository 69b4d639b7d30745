"""A stub of Triton's driver and of `torch.cuda` for machines without a GPU: reports the properties of a named target.

Candidates read the properties to size their grids. The stub cannot run a kernel; launches are replaced separately.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from weir.kernel_eval.toolchain.targets import MAX_THREADS_PER_BLOCK, Target

_WARP_SIZE = 32


class StubDriver:
    """Replaces `triton.runtime.driver.active`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.utils = types.SimpleNamespace(get_device_properties=self._properties)

    def get_current_target(self) -> GPUTarget:
        """The target to compile for."""
        return GPUTarget("cuda", self.target.arch, _WARP_SIZE)

    def get_current_device(self) -> int:
        """The number of the architecture: Triton caches compiled kernels by device."""
        return self.target.arch

    def set_current_device(self, device: int) -> None:
        """Nothing to do: there is one device."""

    def get_current_stream(self, device: int) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """The device of tensors."""
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """torch's interface, as on a CUDA device."""
        return torch.cuda

    def properties(self) -> Any:
        """The result of `torch.cuda.get_device_properties`."""
        target = self.target
        return types.SimpleNamespace(
            name=target.device_name,
            major=target.capability[0],
            minor=target.capability[1],
            total_memory=target.memory_bytes,
            multi_processor_count=target.num_multiprocessors,
            shared_memory_per_block_optin=target.max_shared_bytes,
            shared_memory_per_block=48 << 10,
            max_threads_per_multi_processor=2048,
            max_threads_per_block=MAX_THREADS_PER_BLOCK,
            regs_per_multiprocessor=65536,
            warp_size=_WARP_SIZE,
            L2_cache_size=target.l2_bytes,
        )

    def _properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": self.target.max_shared_bytes,
            "multiprocessor_count": self.target.num_multiprocessors,
            "warpSize": _WARP_SIZE,
            "max_num_regs": 65536,
        }


class StubStream:
    """A stream or an event, which need not do anything on a CPU."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        pass

    synchronize = wait_stream = wait_event = record = wait = _nothing

    def record_event(self, event: Any = None) -> Any:
        """A completed event."""
        return event or StubStream()

    def query(self) -> bool:
        """Always completed."""
        return True


def install(target: Target) -> StubDriver:
    """Make Triton's driver and `torch.cuda` report the target. A later call only changes the target."""
    installed = driver._active
    if isinstance(installed, StubDriver):
        installed.target = target
        return installed
    stub = StubDriver(target)
    driver.set_active(stub)
    current, default = StubStream(), StubStream()
    answers: dict[str, Callable[[], Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda: stub.target.device_name,
        "get_device_capability": lambda: stub.target.capability,
        "get_device_properties": stub.properties,
        "current_stream": lambda: current,
        "default_stream": lambda: default,
        "synchronize": lambda: None,
        "set_device": lambda: None,
        "empty_cache": lambda: None,
        "is_current_stream_capturing": lambda: False,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, answer=answer, **kwargs: answer())
    for name in ("device", "device_of", "stream"):
        setattr(torch.cuda, name, lambda *args, **kwargs: contextlib.nullcontext())
    for name in ("Stream", "Event"):
        setattr(torch.cuda, name, StubStream)
    torch.nn.Module.cuda = lambda module, device=None: module  # type: ignore[assignment]
    return stub
