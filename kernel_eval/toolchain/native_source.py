"""The records of CUDA C++ or HIP that a candidate wants compiled, and the filter of its compiler flags.

Pure; no torch. They come from a process that runs the candidate, so that text and flags are arbitrary: only flags that
affect code generation and cannot name a file are kept.
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
_IMPLICIT = "#include <torch/types.h>\n"  # load_inline prepends it to sources
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
        """The candidate's flags that pass the filter."""
        return tuple(flag for flag in self.wanted_flags if _FLAGS.fullmatch(flag))

    @property
    def ignored_flags(self) -> tuple[str, ...]:
        """The candidate's flags that do not pass the filter."""
        return tuple(flag for flag in self.wanted_flags if not _FLAGS.fullmatch(flag))

    @property
    def uses_torch(self) -> bool:
        """Whether the source needs torch's headers, which take many seconds to read."""
        return self.built_by_torch and bool(_TORCH_NAMES.search(self.text))

    @property
    def defines_kernel(self) -> bool:
        """Whether the text defines a kernel outside of comments."""
        return bool(_KERNEL.search(_COMMENT.sub(" ", self.text)))

    @property
    def file_name(self) -> str:
        """The name of the file that is compiled."""
        return "kernel.cu"

    @property
    def complete_text(self) -> str:
        """The text with the headers that torch would prepend."""
        if not (self.built_by_torch and self.implicit_headers):
            return self.text
        return f"{_IMPLICIT if self.uses_torch else ''}{_RUNTIME}#line 1\n{self.text}"

    def wants_exact_arch(self, target: str) -> bool:
        """Whether the candidate's flags name the architecture-specific variant of the target, such as sm_90a."""
        exact = f"{target.removeprefix('sm_')}a"
        return any(f"{kind}_{exact}" in flag for flag in self.wanted_flags for kind in ("sm", "compute"))


class NativeModule(msgspec.Struct, frozen=True):
    """A module that a candidate wants built: pieces of device code, and the host code that calls them.

    host_text: C++ of a Python extension that contains all pieces; None for a single piece that the driver loads, with
    the name of its kernel. defines_operators: it registers operators with torch instead of being a Python module.
    """

    name: str
    pieces: tuple[NativeSource, ...]
    host_text: str | None = None
    kernel: str = ""
    defines_operators: bool = False


def host_text(texts: tuple[str, ...], functions: dict[str, str], name: str, *, implicit_headers: bool = True) -> str:
    """The C++ file that `load_inline` would make: headers, the candidate's text, bindings."""
    bindings = [
        f'm.def("{function}", torch::wrap_pybind_function({function}), "{description}");'
        for function, description in functions.items()
    ]
    bound = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *bindings, "}"] if functions else []
    headers = ["#include <torch/extension.h>"] if implicit_headers else []
    return "\n".join([f"#define TORCH_EXTENSION_NAME {name}", *headers, *texts, *bound]) + "\n"
