"""What the assembler says of a kernel that was compiled, and what the compiler says of one that was refused."""

from __future__ import annotations

import re
import socket
from typing import Any

import msgspec

from weir.kernel_eval.ipc.forkserver import ASSEMBLER
from weir.kernel_eval.ipc.messages import Assemble, Assembled, BuildNative, BuiltKernel, RefusedKernel
from weir.kernel_eval.judge.channel.contained_program import run_program
from weir.kernel_eval.judge.channel.job import Found
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.toolchain.ptxas_report import Usage, parse_usage

_ENTRY = re.compile(r"\.entry\s+(\w+)")
_PRINTED_CHARS = 16_000
_FAULTS = {
    "compile": Fault.TRITON_COMPILE_ERROR,
    "arch": Fault.UNSUPPORTED_ARCH,
    "shared_memory": Fault.SHARED_MEM_EXCEEDED,
    "launch": Fault.LAUNCH_FAILURE,
}


def describe(lease: socket.socket, limits: Limits, built: BuiltKernel) -> dict[str, Any]:
    """What a kernel needs, as results report it. Raises `Found` where the assembler does not take it."""
    usage = _assemble(lease, limits, built)
    return {
        **described(built.kernel, usage),
        "shared_bytes": built.shared_bytes + usage.static_shared_bytes,
        "num_warps": built.num_warps,
        "num_stages": built.num_stages,
    }


def described(kernel: str, usage: Usage) -> dict[str, Any]:
    """What the assembler alone can say."""
    return {
        "kernel": kernel,
        "shared_bytes": usage.static_shared_bytes,
        "registers": usage.registers,
        "stack_bytes": usage.stack_bytes,
        "spill_bytes": usage.spill_store_bytes + usage.spill_load_bytes,
    }


def entry_of(assembly: str) -> str:
    """The name of the kernel in a text."""
    found = _ENTRY.search(assembly)
    return found[1] if found else ""


def refused_for(refused: RefusedKernel, target: str, printed: str) -> Found:
    """A kernel that the compiler does not take for a target, with what was printed meanwhile."""
    reason = refused.message.strip().rpartition("\n")[2]  # Triton quotes the source first
    message = f"{reason} ({refused.kernel} for {target})\n{refused.message}"
    details = {"compiler_output": printed} if printed else {}
    return Found(Stage.LOADED, _FAULTS[refused.reason], message, phase="compile", kernel=refused.kernel, **details)


def machine_code(lease: socket.socket, limits: Limits, message: Assemble | BuildNative) -> Assembled:
    """For a worker that asks: its text as the device's own code, for the device that this evaluation is on.

    Raises `Found` where a candidate for Triton asks for a compiler of CUDA C++.
    """
    if isinstance(message, BuildNative):
        text = f"{message.module.name} is CUDA C++ in a candidate for triton: send it with the backend cuda"
        raise Found(Stage.NOTHING, Fault.COMPILE_ERROR, text, phase="load")
    ours = msgspec.structs.replace(message, target=limits.target)
    ended = run_program(lease, limits, ASSEMBLER, ours, limits.compile_timeout_s, writes=True)
    return Assembled(ended.written if ended.exit_code == 0 else None, ended.printed[-_PRINTED_CHARS:])


def _assemble(lease: socket.socket, limits: Limits, built: BuiltKernel) -> Usage:
    message = Assemble(built.assembly, limits.target)
    printed, exit_code, _ = run_program(lease, limits, ASSEMBLER, message, limits.compile_timeout_s, writes=True)
    usage = parse_usage(printed) if exit_code == 0 else None
    if usage is None:
        text = f"ptxas ended with {exit_code} for {built.kernel}: {printed[-2000:]}"
        raise Found(Stage.LOADED, Fault.TRITON_COMPILE_ERROR, text, phase="compile")
    return usage
