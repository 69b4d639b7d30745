"""Compiles the CUDA C++ of a candidate in a process without its code, with the judge's own command line.

Invariants: no code of the candidate runs while it is compiled; the machine code that the proof runs was built here,
from the text that the candidate gave; all compilations of one candidate share one time limit.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import msgspec

from weir.kernel_eval.ipc.messages import BuildNative, BuiltNative, CompileNative
from weir.kernel_eval.judge.channel.contained_program import CompilerRun, run_compiler
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks import native_report
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.toolchain import launch_hook
from weir.kernel_eval.toolchain.native_compilers import EXTENSION, HOOK, HOST, Toolchain, piece_name
from weir.kernel_eval.toolchain.native_source import NativeModule
from weir.kernel_eval.toolchain.ptx_parameters import layouts_in

MAX_SOURCES = 8
_MEMORY_BYTES, _FILE_BYTES = 4 << 30, 256 << 20  # torch's headers, preprocessed, are large


class NativeBuilder:
    """The compilations of one candidate, in the order of its requests."""

    def __init__(self, lease: socket.socket, limits: Limits, toolchain: Toolchain) -> None:
        self._lease = lease
        self._limits = limits
        self._toolchain = toolchain
        self._left_s = limits.native_timeout_s
        self._modules: list[NativeModule] = []
        self._kernels: list[dict[str, Any]] = []
        self.codes: list[bytes] = []

    @property
    def defines_kernel(self) -> bool:
        """Whether any source contains a kernel."""
        return any(piece.defines_kernel for module in self._modules for piece in module.pieces)

    def build(self, message: BuildNative) -> BuiltNative:
        """Handle a worker's request. Raises `FaultDetected` if the module does not compile."""
        module = message.module
        self._modules.append(module)
        if module.defines_operators:
            text = f"{module.name} registers operators with torch, whose launches cannot be recorded: bind functions"
            raise FaultDetected(Stage.NOTHING, Fault.COMPILE_ERROR, text, phase="compile")
        check_number(sum(len(module.pieces) for module in self._modules))
        names = [piece_name(index) for index in range(len(module.pieces))]
        wanted = (EXTENSION, *(f"{name}.{kind}" for name in names for kind in ("cubin", "ptx")))
        command = self._toolchain.build_command(module, self._limits.target)
        started = time.monotonic()
        made = compile_files(
            self._lease, self._limits, module.name, CompileNative(_files(module), command, wanted), self._left_s
        )
        self._left_s -= time.monotonic() - started
        self._kernels += native_report.kernels_in(made.printed)
        codes = tuple(made.files.get(f"{name}.cubin", b"") for name in names)
        layouts = tuple(
            tuple(layouts_in(made.files.get(f"{name}.ptx", b"").decode(errors="replace"))) for name in names
        )
        first = len(self.codes)
        self.codes += codes
        return BuiltNative(made.files.get(EXTENSION), codes, layouts, first)

    def report(self) -> dict[str, Any]:
        """The compiler's report on all kernels."""
        flags = {flag for module in self._modules for piece in module.pieces for flag in piece.ignored_flags}
        return {
            "target": self._limits.target,
            "kernels": self._kernels,
            "ignored_flags": sorted(flags),
            "seconds": round(self._limits.native_timeout_s - self._left_s, 4),
        }


def check_number(number: int) -> None:
    """Raises `FaultDetected` if a candidate has more sources than are compiled for one."""
    if number > MAX_SOURCES:
        text = f"{number} sources were given to the compiler, at most {MAX_SOURCES} are accepted"
        raise FaultDetected(Stage.NOTHING, Fault.COMPILE_ERROR, text, phase="compile")


def compile_files(
    lease: socket.socket, limits: Limits, name: str, message: CompileNative, left_s: float
) -> CompilerRun:
    """Run a compiler for at most `left_s`. Raises `FaultDetected` if it fails or runs out of time."""
    run = run_compiler(lease, _compiler_limits(limits), message, max(left_s, 0.001))
    if run.exit_code is None:
        text = f"{name}: the compiler used up its {limits.native_timeout_s:g} s, or its memory"
        raise FaultDetected(Stage.NOTHING, Fault.TIMEOUT, text, phase="compile")
    if run.exit_code != 0:
        raise native_report.refusal(run.printed, name, limits.target)
    return run


def _compiler_limits(limits: Limits) -> Limits:
    """The limits of a compiler, which needs more memory and file space than a candidate, and no GPU."""
    return msgspec.structs.replace(
        limits,
        memory_bytes=_MEMORY_BYTES,
        cpu_s=int(limits.native_timeout_s) + 1,
        output_bytes=_FILE_BYTES,
        tmp_bytes=_FILE_BYTES,
        gpu=None,
    )


def _files(module: NativeModule) -> dict[str, str]:
    files = {f"{piece_name(index)}.cu": piece.complete_text for index, piece in enumerate(module.pieces)}
    return files if module.host_text is None else files | {HOST: module.host_text, HOOK: launch_hook.SOURCE}
