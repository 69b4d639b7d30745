"""Reports of compiled kernels from the assembler, and the fault of a kernel that the compiler refused."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import msgspec

from weir.kernel_eval.ipc.forkserver import ASSEMBLER
from weir.kernel_eval.ipc.messages import Assemble, Assembled, BuildNative, BuiltKernel, RefusedKernel
from weir.kernel_eval.judge.channel.contained_program import ProgramRun, RunningProgram, run_program
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.toolchain.ptxas_report import Usage, parse_usage

_PRINTED_CHARS = 16_000
_FAULTS = {
    "compile": Fault.TRITON_COMPILE_ERROR,
    "arch": Fault.UNSUPPORTED_ARCH,
    "shared_memory": Fault.SHARED_MEM_EXCEEDED,
    "launch": Fault.LAUNCH_FAILURE,
}


def describe(
    lease: socket.socket, limits: Limits, built: BuiltKernel, started: RunningProgram | None = None
) -> dict[str, Any]:
    """A kernel's resources, as results report them, from its assembler, if that was started before.

    Raises `FaultDetected` if the assembler refuses the kernel.
    """
    if started is None:
        with contextlib.closing(start_assembler(lease, limits, built)) as own:
            run = own.result(limits.compile_timeout_s, writes=True)
    else:
        run = started.result(limits.compile_timeout_s, writes=True)
    return described(run, built)


def described(run: ProgramRun, built: BuiltKernel) -> dict[str, Any]:
    """A kernel's resources after its assembler has ended. Raises `FaultDetected` if that refused the kernel."""
    usage = _usage(run, built)
    return {
        **usage_report(built.kernel, usage),
        "shared_bytes": built.shared_bytes + usage.static_shared_bytes,
        "num_warps": built.num_warps,
        "num_stages": built.num_stages,
    }


def start_assembler(lease: socket.socket, limits: Limits, built: BuiltKernel) -> RunningProgram:
    """The assembler of a kernel, which is the only program under this lease until it is closed."""
    return RunningProgram(lease, limits, ASSEMBLER, Assemble(built.assembly, limits.target))


def usage_report(kernel: str, usage: Usage) -> dict[str, Any]:
    """The resources that the assembler alone knows."""
    return {
        "kernel": kernel,
        "shared_bytes": usage.static_shared_bytes,
        "registers": usage.registers,
        "stack_bytes": usage.stack_bytes,
        "spill_bytes": usage.spill_store_bytes + usage.spill_load_bytes,
    }


def refused_for(refused: RefusedKernel, target: str, printed: str) -> FaultDetected:
    """The fault of a kernel that the compiler refused for a target, with the output of the compile worker."""
    reason = refused.message.strip().rpartition("\n")[2]  # Triton quotes the source first
    message = f"{reason} ({refused.kernel} for {target})\n{refused.message}"
    details = {"compiler_output": printed} if printed else {}
    return FaultDetected(
        Stage.LOADED, _FAULTS[refused.reason], message, phase="compile", kernel=refused.kernel, **details
    )


def machine_code(lease: socket.socket, limits: Limits, message: Assemble | BuildNative) -> Assembled:
    """Assemble a worker's PTX into machine code for the evaluation's own device.

    Raises `FaultDetected` if a candidate of the Triton backend requests a CUDA C++ compiler.
    """
    if isinstance(message, BuildNative):
        text = f"{message.module.name} is CUDA C++ in a candidate for triton: send it with the backend cuda"
        raise FaultDetected(Stage.NOTHING, Fault.COMPILE_ERROR, text, phase="load")
    for_target = msgspec.structs.replace(message, target=limits.target)
    run = run_program(lease, limits, ASSEMBLER, for_target, limits.compile_timeout_s, writes=True)
    return Assembled(run.written if run.exit_code == 0 else None, run.printed[-_PRINTED_CHARS:])


def _usage(run: ProgramRun, built: BuiltKernel) -> Usage:
    usage = parse_usage(run.printed) if run.exit_code == 0 else None
    if usage is None:
        text = f"ptxas ended with {run.exit_code} for {built.kernel}: {run.printed[-2000:]}"
        raise FaultDetected(Stage.LOADED, Fault.TRITON_COMPILE_ERROR, text, phase="compile")
    return usage
