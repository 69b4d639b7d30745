"""Finds the compilers of CUDA C++ and HIP, and builds their command lines.

Nothing is started here, and torch is not imported. A missing compiler is named, and is never a candidate's fault.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sysconfig
from pathlib import Path
from typing import Literal, NamedTuple

from weir.kernel_eval.toolchain import launch_hook
from weir.kernel_eval.toolchain.native_source import NativeModule, NativeSource

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
_VERSION = re.compile(r"#define\s+CUDA_VERSION\s+(\d+)")
EXTENSION, HOST, HOOK = "extension.so", "main.cpp", "hook.cpp"  # the files of a module that is built to be run


class Toolchain(NamedTuple):
    """One compiler. `home` is the toolkit's folder, which a sandbox must make readable."""

    language: Language
    program: str
    home: str

    def command(self, source: NativeSource, target: str) -> tuple[str, ...]:
        """The command that compiles device code for the target, and prints the resources of each kernel."""
        includes = [word for folder in _include_folders() for word in ("-isystem", folder)] if source.uses_torch else []
        common = ("-w", *_with_standard(source.flags), *includes, source.file_name, "-o", "kernel.bin")
        if self.language == "hip":
            return (self.program, "--genco", f"--offload-arch={_HIP_ARCHES[0]}", *common)
        arch = f"{target}a" if source.wants_exact_arch(target) else target
        flags = _TORCH_FLAGS if source.built_by_torch else ()
        return (self.program, f"-arch={arch}", "-cubin", "-Xptxas", "-v", *flags, *common)

    def build_command(self, module: NativeModule, target: str) -> tuple[str, ...]:
        """The command that builds a module for the target, and keeps the machine code and PTX of each piece.

        One run makes both, because the names of kernels that are local to a file differ between runs.
        """
        pieces = [f"{piece_name(index)}.cu" for index in range(len(module.pieces))]
        exact = any(piece.wants_exact_arch(target) for piece in module.pieces)
        number = target.removeprefix("sm_") + ("a" if exact else "")
        common = (
            *(self.program, f"-gencode=arch=compute_{number},code=sm_{number}", "-Xptxas", "-v", "--keep", "-w"),
            *_with_standard(tuple(dict.fromkeys(flag for piece in module.pieces for flag in piece.flags))),
        )
        if module.host_text is None:
            return (*common, "-cubin", *pieces, "-o", f"{piece_name(0)}.cubin")
        includes = [word for folder in _include_folders() for word in ("-isystem", folder)]
        return (
            *(*common, *_TORCH_FLAGS, *includes, "-shared", "-Xcompiler", "-fPIC", "--cudart=shared"),
            *launch_hook.LINKER_FLAGS,
            *(HOST, HOOK, *pieces, "-o", EXTENSION, *_torch_libraries()),
        )


def _with_standard(flags: tuple[str, ...]) -> tuple[str, ...]:
    """The flags with torch's version of C++, unless they name another."""
    return flags if any(flag.startswith("-std=") for flag in flags) else ("-std=c++20", *flags)


def piece_name(index: int) -> str:
    """The name of a piece's files, without suffix."""
    return f"piece{index}"


def toolkit_home(language: Language) -> str | None:
    """The toolkit's folder, from a variable, its usual location or the search path; None if it is not installed."""
    variables, usual, program = _PLACES[language]
    on_path = shutil.which(program)
    beside = str(Path(on_path).resolve().parent.parent) if on_path else None
    for home in (*(os.environ.get(name) for name in variables), usual, beside):
        if home and os.access(f"{home}/bin/{program}", os.X_OK):
            return str(Path(home).resolve())
    return None


@functools.cache
def find(language: Language) -> Toolchain | str:
    """The toolchain of a language, or a message about what is missing."""
    program = _PLACES[language][2]
    if language == "hip" and "rocm" not in importlib.metadata.version("torch"):
        return "torch is not built for ROCm"
    home = toolkit_home(language)
    if home is None:
        return f"{program} is not installed (looked in {_PLACES[language][0][0]}, {_PLACES[language][1]} and PATH)"
    if shutil.which("g++", path="/usr/local/bin:/usr/bin:/bin") is None:
        return f"{program} needs g++, which is not installed"
    return Toolchain(language, f"{home}/bin/{program}", home)


def runs_here(toolchain: Toolchain) -> str | None:
    """The reason why extensions of this toolchain cannot be loaded beside torch; None if they can."""
    of_torch = _torch_cuda()
    header = Path(toolchain.home, "include/cuda.h")
    version = _VERSION.search(header.read_text(errors="replace")) if header.is_file() else None
    own = int(version[1]) // 1000 if version else None
    if of_torch is None or own is None or own == of_torch:
        return None
    return f"{toolchain.home} has CUDA {own}, and torch is built for CUDA {of_torch}: install the same version"


def available() -> tuple[Language, ...]:
    """The languages that can be compiled on this machine."""
    return tuple(language for language in _PLACES if isinstance(find(language), Toolchain))


def homes() -> tuple[str, ...]:
    """The folders of all installed toolkits."""
    homes = (toolkit_home(language) for language in _PLACES)
    return tuple(home for home in homes if home is not None)


def _torch_cuda() -> int | None:
    """The major version of CUDA that torch is built for, from its wheel's name; None without CUDA."""
    version = re.search(r"\+cu(\d+)\d$", importlib.metadata.version("torch"))
    return int(version[1]) if version else None


def _torch_libraries() -> tuple[str, ...]:
    """Linker flags for torch's libraries that exist; torch without CUDA lacks some."""
    folder = _torch_folder() / "lib"
    names = ("c10", "torch_cpu", "torch", "torch_python", "c10_cuda", "torch_cuda")
    return (f"-L{folder}", *(f"-l{name}" for name in names if (folder / f"lib{name}.so").exists()))


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@functools.cache
def _include_folders() -> tuple[str, ...]:
    """The headers of torch, of Python, and of the CUDA libraries that torch's wheels installed."""
    packages = _torch_folder().parent
    torch = _torch_folder() / "include"
    libraries = sorted(packages.glob("nvidia/*/include"))
    folders = (torch, torch / "torch/csrc/api/include", Path(sysconfig.get_paths()["include"]), *libraries)
    return tuple(str(folder) for folder in folders if folder.is_dir())
