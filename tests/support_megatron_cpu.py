"""What Megatron-core needs to run on CPUs over gloo: CUDA's calls that do nothing, and three of its functions.

Invariant: the one place of such shims; nothing of Weir's own is replaced. Import it before anything of Megatron-core.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Nothing:
    """A stream or event of a device that has none."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: Nothing()

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: Any) -> bool:
        return False


class OnCpu(TorchFunctionMode):
    """Takes "cuda" for the CPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if "cuda" in str(named.get("device", "")):
            named["device"] = "cpu"
        if named.get("pin_memory"):
            named["pin_memory"] = False
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.Tensor.record_stream:
            return None
        if function is torch.Tensor.type and len(args) == 1 and not named:
            return function(*args).replace("torch.", "torch.cuda.", 1)  # gradients are sorted by this name
        return function(*args, **named)


class OnDevice(TorchFunctionMode):
    """Takes every tensor for one on a device, except what is pinned, and what is made of that."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return not hasattr(args[0], "is_on_host")
        found = function(*args, **(kwargs or {}))
        if function is torch.Tensor.pin_memory or any(hasattr(each, "is_on_host") for each in args):
            with contextlib.suppress(AttributeError):  # what is no tensor
                found.is_on_host = True
        return found


class NoRandomState:
    """In place of the states of CUDA's random numbers, of which nothing here draws."""

    def fork(self, *_: Any, **__: Any) -> Any:
        return contextlib.nullcontext()

    def get_states(self) -> dict[str, Any]:
        return {}

    def is_initialized(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def install() -> None:
    """Let Megatron-core run on this process's CPU, from now on."""
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment, return-value]
    torch.cuda.synchronize = lambda *_, **__: None  # type: ignore[assignment]
    for name in ("current_stream", "default_stream", "stream"):
        setattr(torch.cuda, name, lambda *_, **__: Nothing())
    torch.cuda.Stream = torch.cuda.Event = Nothing  # type: ignore[assignment, misc]
    OnCpu().__enter__()
    from megatron.core.optimizer.cpu_offloading.hybrid_optimizer import HybridDeviceOptimizer
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import token_dispatcher

    def moved(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor

    token_dispatcher.maybe_move_tensor_to_cpu = moved  # the original moves CUDA's tensors only
    divided = HybridDeviceOptimizer._get_sub_optimizer_param_groups

    def divided_as_on_a_device(self: Any, fraction: float) -> Any:
        with OnDevice():
            return divided(self, fraction)

    HybridDeviceOptimizer._get_sub_optimizer_param_groups = divided_as_on_a_device  # what is on the CPU already stays
    random._CUDA_RNG_STATE_TRACKER, random._CUDA_RNG_STATE_TRACKER_INITIALIZED = NoRandomState(), True
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)


def in_ranks(folder: Path) -> dict[str, str]:
    """The environment in which the ranks that a process starts run Megatron-core on CPUs; `folder` is an empty one."""
    lines = ["import os", "if 'LOCAL_RANK' in os.environ:"]
    lines += ["    import support_megatron_cpu", "    support_megatron_cpu.install()"]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return {"PYTHONPATH": f"{folder}:{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
