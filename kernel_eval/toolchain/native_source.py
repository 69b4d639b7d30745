"""A piece of CUDA C++ or HIP that a candidate wants compiled, as it travels, and what is let through of its flags.

Pure; no torch. It comes from a process that runs the candidate, so that text and flags may be anything: flags are kept
only where they change how code is generated, and can name no file.
"""

from __future__ import annotations

import re

import msgspec

_FLAGS = re.compile(
    r"-O[0-3]|-std=c\+\+\d\d|-lineinfo|-[DU]\w+(=\w+)?|--?(use_fast_math|restrict|extra-device-vectorization)"
    r"|--?expt-(relaxed-constexpr|extended-lambda)|--?(ftz|prec-div|prec-sqrt|fmad)=(true|false)|--?maxrregcount=\d+"
)
_TORCH_NAMES = re.compile(r"\b(torch|at|c10|pybind11|py)::|#\s*include\s*[<\"](torch|ATen|c10|pybind11)/|TORCH_|PYBIND")
_KERNEL = re.compile(r"\b__global__\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_IMPLICIT = "#include <torch/types.h>\n"  # what load_inline puts before sources
_RUNTIME = "#include <cuda.h>\n#include <cuda_runtime.h>\n"


class NativeSource(msgspec.Struct, frozen=True):
    """One translation unit, as the candidate gave it to `load_inline`, `load` or `torch.cuda._compile_kernel`."""

    name: str
    text: str
    wanted_flags: tuple[str, ...] = ()
    built_by_torch: bool = True  # False: by the run-time compiler, without torch's headers and flags
    implicit_headers: bool = True

    @property
    def flags(self) -> tuple[str, ...]:
        """Of the candidate's flags, those that are let through."""
        return tuple(flag for flag in self.wanted_flags if _FLAGS.fullmatch(flag))

    @property
    def ignored_flags(self) -> tuple[str, ...]:
        """The others."""
        return tuple(flag for flag in self.wanted_flags if not _FLAGS.fullmatch(flag))

    @property
    def uses_torch(self) -> bool:
        """Whether torch's headers are needed: reading them takes many seconds."""
        return self.built_by_torch and bool(_TORCH_NAMES.search(self.text))

    @property
    def defines_kernel(self) -> bool:
        """Whether a kernel is written here, comments left out."""
        return bool(_KERNEL.search(_COMMENT.sub(" ", self.text)))

    @property
    def file_name(self) -> str:
        """Of the file that it is compiled as."""
        return "kernel.cu"

    @property
    def complete_text(self) -> str:
        """The text with what torch would have put before it."""
        if not (self.built_by_torch and self.implicit_headers):
            return self.text
        return f"{_IMPLICIT if self.uses_torch else ''}{_RUNTIME}#line 1\n{self.text}"

    def wants_exact_arch(self, target: str) -> bool:
        """Whether the candidate compiles for sm_90a where the target is sm_90: instructions of that chip alone."""
        exact = f"{target.removeprefix('sm_')}a"
        return any(f"{kind}_{exact}" in flag for flag in self.wanted_flags for kind in ("sm", "compute"))


class NativeModule(msgspec.Struct, frozen=True):
    """What a candidate wants built in order to run it: pieces of device code, and what calls them.

    host_text: C++ that becomes a module of Python, with all pieces in it; None: one piece, which the driver loads, and
    whose kernel is named. defines_operators: it is not to be a module, but to register operators with torch.
    """

    name: str
    pieces: tuple[NativeSource, ...]
    host_text: str | None = None
    kernel: str = ""
    defines_operators: bool = False


def host_text(texts: tuple[str, ...], functions: dict[str, str], name: str, *, implicit_headers: bool = True) -> str:
    """The C++ file that `load_inline` would have made: headers, the candidate's text, bindings."""
    bindings = [
        f'm.def("{function}", torch::wrap_pybind_function({function}), "{says}");'
        for function, says in functions.items()
    ]
    bound = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *bindings, "}"] if functions else []
    headers = ["#include <torch/extension.h>"] if implicit_headers else []
    return "\n".join([f"#define TORCH_EXTENSION_NAME {name}", *headers, *texts, *bound]) + "\n"
