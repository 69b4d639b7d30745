"""`python -m sglang.launch_server` as sglang_forked.py, on a CPU with LoRA; for SGLang's own Python.

SGLang 0.5.23 asks for page-locked memory for its adapters whatever the device is, which torch gives only where there
is an accelerator. Without one, memory is the same as any other, and its backend in plain torch runs as it is.
"""

from __future__ import annotations

import functools
import runpy
from pathlib import Path
from typing import Any

import torch


def unpinned(make: Any) -> Any:
    """A maker of tensors that leaves out `pin_memory`."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        return make(*args, **(kwargs | {"pin_memory": False} if "pin_memory" in kwargs else kwargs))

    return made


for name in ("tensor", "empty", "zeros", "ones", "arange"):
    setattr(torch, name, unpinned(getattr(torch, name)))
torch.Tensor.pin_memory = lambda self, device=None: self  # type: ignore[method-assign,assignment]
runpy.run_path(str(Path(__file__).with_name("sglang_forked.py")), run_name="__main__")
