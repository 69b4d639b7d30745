"""Replaces torch's extension compilers in a process that cannot start programs.

`load_inline`, `load` and `torch.cuda._compile_kernel` make a `NativeModule` from their arguments, and pass it to a
function that records it (`source_collector.py`) or has the judge build it (`remote_compiler.py`). Linker flags and
include folders are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from weir.kernel_eval.toolchain.native_source import NativeModule, NativeSource, host_text

_DEVICE_CODE = (".cu", ".hip")

Build = Callable[[NativeModule], Any]


class ExtensionCalls:
    """The replacements of torch's functions."""

    def __init__(self, build: Build) -> None:
        self._build = build

    def install(self) -> None:
        """Replace torch's functions in this process."""
        cpp_extension.load_inline = self.load_inline
        cpp_extension.load = self.load
        torch.cuda._compile_kernel = self.compile_kernel

    def load_inline(
        self,
        name: str,
        cpp_sources: Any,
        cuda_sources: Any = None,
        sycl_sources: Any = None,
        functions: Any = None,
        extra_cflags: Any = None,
        extra_cuda_cflags: Any = None,
        *args: Any,
        is_python_module: bool = True,
        no_implicit_headers: bool = False,
        **kwargs: Any,
    ) -> Any:
        """As `torch.utils.cpp_extension.load_inline`."""
        implicit, device = not no_implicit_headers, "\n".join(_texts(cuda_sources))
        bound = functions if isinstance(functions, dict) else {each: each for each in _texts(functions)}
        host = host_text(_texts(cpp_sources), bound, name, implicit_headers=implicit)
        source = NativeSource(name, device, tuple(extra_cuda_cflags or ()), implicit_headers=implicit)
        return self._build(
            NativeModule(name, (source,) if device else (), host, defines_operators=not is_python_module)
        )

    def load(
        self,
        name: str,
        sources: Any,
        extra_cflags: Any = None,
        extra_cuda_cflags: Any = None,
        *args: Any,
        is_python_module: bool = True,
        **kwargs: Any,
    ) -> Any:
        """As `torch.utils.cpp_extension.load`."""
        paths = [Path(path) for path in ([sources] if isinstance(sources, str) else sources)]
        flags = tuple(extra_cuda_cflags or ())
        texts = {path: path.read_text(encoding="utf-8") for path in paths}
        pieces = tuple(
            NativeSource(name, text, flags, implicit_headers=False)
            for path, text in texts.items()
            if path.suffix in _DEVICE_CODE
        )
        rest = tuple(text for path, text in texts.items() if path.suffix not in _DEVICE_CODE)
        host = host_text(rest, {}, name, implicit_headers=False)
        return self._build(NativeModule(name, pieces, host, defines_operators=not is_python_module))

    def compile_kernel(self, kernel_source: str, kernel_name: str, *args: Any, **kwargs: Any) -> Any:
        """As `torch.cuda._compile_kernel`."""
        flags = tuple(kwargs.get("nvcc_options") or ())
        source = NativeSource(kernel_name, kernel_source, flags, built_by_torch=False)
        return self._build(NativeModule(kernel_name, (source,), kernel=kernel_name))


def _texts(sources: str | Iterable[str] | None) -> tuple[str, ...]:
    return (sources,) if isinstance(sources, str) else tuple(sources or ())
