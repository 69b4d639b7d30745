"""The compilers of CUDA C++ and HIP, where they are installed, and the command line that checks a source with one.

Nothing is started here, and torch is not imported: a server asks what there is, a judge what to have started. What is
missing is named, and is never a candidate's fault.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Literal, NamedTuple

from weir.kernel_eval.native_source import NativeSource

Language = Literal["cuda", "hip"]
_PLACES: dict[Language, tuple[tuple[str, ...], str, str]] = {
    "cuda": (("CUDA_HOME", "CUDA_PATH"), "/usr/local/cuda", "nvcc"),
    "hip": (("ROCM_HOME", "ROCM_PATH"), "/opt/rocm", "hipcc"),
}
_HIP_ARCHES = ("gfx942", "gfx950", "gfx90a")
# as torch.utils.cpp_extension compiles; a kernel that needs these operators would not build there either
_TORCH_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)


class Toolchain(NamedTuple):
    """One compiler. `home` is the folder of the toolkit, which a sandbox has to show."""

    language: Language
    program: str
    home: str

    def command(self, source: NativeSource, target: str) -> tuple[str, ...]:
        """What compiles device code for the target, in the folder of the source, and says what each kernel needs."""
        includes = [word for folder in _include_folders() for word in ("-isystem", folder)] if source.uses_torch else []
        common = ("-std=c++17", "-w", *source.flags, *includes, source.file_name, "-o", "kernel.bin")
        if self.language == "hip":
            return (self.program, "--genco", f"--offload-arch={_HIP_ARCHES[0]}", *common)
        arch = f"{target}a" if source.wants_exact_arch(target) else target
        flags = _TORCH_FLAGS if source.built_by_torch else ()
        return (self.program, f"-arch={arch}", "-cubin", "-Xptxas", "-v", *flags, *common)


def toolkit_home(language: Language) -> str | None:
    """Where the toolkit lies: a variable says so, or the search path, or it is where its installer puts it."""
    variables, usual, program = _PLACES[language]
    on_path = shutil.which(program)
    beside = str(Path(on_path).resolve().parent.parent) if on_path else None
    for home in (*(os.environ.get(name) for name in variables), usual, beside):
        if home and os.access(f"{home}/bin/{program}", os.X_OK):
            return str(Path(home).resolve())
    return None


@functools.cache
def find(language: Language) -> Toolchain | str:
    """The toolchain of a language, or what is missing for it."""
    program = _PLACES[language][2]
    if language == "hip" and "rocm" not in importlib.metadata.version("torch"):
        return "torch is not built for ROCm"
    home = toolkit_home(language)
    if home is None:
        return f"{program} is not installed (looked in {_PLACES[language][0][0]}, {_PLACES[language][1]} and PATH)"
    if shutil.which("g++", path="/usr/local/bin:/usr/bin:/bin") is None:
        return f"{program} needs g++, which is not installed"
    return Toolchain(language, f"{home}/bin/{program}", home)


def available() -> tuple[Language, ...]:
    """The languages that can be compiled here."""
    return tuple(language for language in _PLACES if isinstance(find(language), Toolchain))


def homes() -> tuple[str, ...]:
    """The folders of all toolkits that are found."""
    found = (toolkit_home(language) for language in _PLACES)
    return tuple(home for home in found if home is not None)


@functools.cache
def _include_folders() -> tuple[str, ...]:
    """torch's own headers, Python's, and those of CUDA's libraries where torch's wheels brought them."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    packages = Path(spec.origin).parents[1]
    torch = packages / "torch" / "include"
    libraries = sorted(packages.glob("nvidia/*/include"))
    folders = (torch, torch / "torch/csrc/api/include", Path(sysconfig.get_paths()["include"]), *libraries)
    return tuple(str(folder) for folder in folders if folder.is_dir())
