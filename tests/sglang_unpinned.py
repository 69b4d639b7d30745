"""`python -m sglang.launch_server` as sglang_forked.py, on a CPU with LoRA or the experts of a mixture's tokens; for
SGLang's own Python.

SGLang 0.5.23 asks for page-locked memory for its adapters, and for the experts that it keeps, whatever the device is;
torch gives it only where there is an accelerator. Without one, memory is the same as any other, and its backends in
plain torch run as they are.
"""

from __future__ import annotations

import functools
import runpy
from pathlib import Path
from typing import Any

import torch
from sglang.srt.mem_cache.pool_host import common


def unpinned(make: Any) -> Any:
    """A maker of tensors that leaves out `pin_memory`."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        return make(*args, **(kwargs | {"pin_memory": False} if "pin_memory" in kwargs else kwargs))

    return made


for name in ("tensor", "empty", "zeros", "ones", "arange"):
    setattr(torch, name, unpinned(getattr(torch, name)))
torch.Tensor.pin_memory = lambda self, device=None: self  # type: ignore[method-assign,assignment]
common._cuda_host_register = lambda buffer, granularity=None: None
runpy.run_path(str(Path(__file__).with_name("sglang_forked.py")), run_name="__main__")
