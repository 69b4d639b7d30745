"""Classifies the end of a worker: pure functions from its exception, signal or exit code to a `FaultDetected`.

Order of trust: the signal and exit code, which the operating system reports; the errno, CUDA's code and the type of an
exception, which the worker reports; text, only if torch offers nothing else (`out_of_memory`, set by the worker).
Invariant: nothing that a worker reports, or can do to itself, becomes a fault of the server.
"""

from __future__ import annotations

import errno
import signal

from weir.kernel_eval.gpu import cuda_errors
from weir.kernel_eval.ipc.forkserver import Exited
from weir.kernel_eval.ipc.messages import Failed, Phase, Refusal
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage

_REFUSED = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})
_TOO_MUCH_OUTPUT = frozenset({errno.EFBIG, errno.ENOSPC})
_BY_SIGNAL = {
    signal.SIGSEGV: Fault.SEGFAULT,
    signal.SIGBUS: Fault.SEGFAULT,
    signal.SIGXCPU: Fault.TIMEOUT,
    signal.SIGXFSZ: Fault.OUTPUT_FLOOD,
    signal.SIGSYS: Fault.SANDBOX_VIOLATION,
}
_BY_REFUSAL: dict[Refusal, Fault] = {
    "compiler": Fault.TRITON_COMPILE_ERROR,
    "arch": Fault.UNSUPPORTED_ARCH,
    "shared_memory": Fault.SHARED_MEM_EXCEEDED,
    "threads": Fault.LAUNCH_FAILURE,
    "host_read": Fault.RUNTIME_ERROR,
}
_BY_REFUSAL_OF_PLAYER: dict[Refusal, Fault] = {  # in whose process no candidate can name a reason
    "out_of_bounds": Fault.ILLEGAL_ACCESS,
    "misaligned": Fault.MISALIGNED,
    "assertion": Fault.DEVICE_ASSERT,
    "unsupported": Fault.UNSUPPORTED,
    "malformed": Fault.TRITON_COMPILE_ERROR,
    "too_much": Fault.TIMEOUT,
    "order": Fault.NONDETERMINISTIC,
}
_CPU_SLACK_S = 0.5
_LARGE_SHARE = 0.25  # of the memory limit; the measured size is a lower bound


def stage_of(phase: Phase) -> Stage:
    """The stage that a candidate had reached when it failed in this phase."""
    return Stage.NOTHING if phase in ("load", "entry_point") else Stage.LOADED


def from_exception(failed: Failed) -> FaultDetected:
    """The fault of a candidate that raised an exception, or of a kernel that did not run."""
    fault = _fault_of_exception(failed)
    if failed.kernel:
        reason = failed.message.strip().rpartition("\n")[2]  # Triton quotes the source first
        message = f"{reason} ({failed.kernel})" + (f"\n{failed.message}" if reason != failed.message.strip() else "")
        phase = "compile" if failed.refused_by in _BY_REFUSAL else failed.phase
        return FaultDetected(stage_of(failed.phase), fault, message, phase=phase, kernel=failed.kernel)
    return FaultDetected(
        stage_of(failed.phase),
        fault,
        f"{failed.exception} in {failed.phase}: {failed.message}",
        phase=failed.phase,
        exception=failed.exception,
        traceback=failed.traceback,
    )


def _fault_of_exception(failed: Failed) -> Fault:
    if failed.os_errno in _REFUSED:
        return Fault.SANDBOX_VIOLATION
    if failed.os_errno in _TOO_MUCH_OUTPUT:
        return Fault.OUTPUT_FLOOD
    if failed.out_of_memory:
        return Fault.OUT_OF_MEMORY
    known = _BY_REFUSAL | _BY_REFUSAL_OF_PLAYER if failed.phase == "replay" else _BY_REFUSAL
    if failed.refused_by in known:
        return known[failed.refused_by]
    by_code = None if failed.cuda_error is None else cuda_errors.fault_of(failed.cuda_error)
    if by_code is not None:
        return by_code
    if failed.exception == "SystemExit":
        return Fault.EARLY_EXIT
    by_phase: dict[Phase, Fault] = {
        "load": Fault.SYNTAX_ERROR if failed.exception in ("SyntaxError", "IndentationError") else Fault.IMPORT_ERROR,
        "entry_point": Fault.MISSING_ENTRY_POINT,
        "init": Fault.INIT_ERROR,
        "call": Fault.RUNTIME_ERROR,
        "replay": Fault.RUNTIME_ERROR,
    }
    return by_phase[failed.phase]


def from_exit(exited: Exited, phase: Phase, limits: Limits) -> FaultDetected:
    """The fault of a worker that ended before it had answered."""
    stage = stage_of(phase)
    if exited.signal is None:
        return FaultDetected(
            stage,
            Fault.EARLY_EXIT,
            f"the process ended with exit code {exited.exit_code} in {phase}, without an answer",
            phase=phase,
        )
    name = signal.Signals(exited.signal).name
    if was_killed(exited, limits):
        return from_kill(exited, stage, phase, limits)
    if exited.signal != signal.SIGKILL:
        fault = _BY_SIGNAL.get(signal.Signals(exited.signal), Fault.KILLED)
        return FaultDetected(stage, fault, f"the process was ended by {name} in {phase}", phase=phase, signal=name)
    if exited.killed_by_us:
        return FaultDetected(
            stage, Fault.PROTOCOL_ERROR, f"the candidate closed the worker's channel in {phase}", phase=phase
        )
    return FaultDetected(
        stage, Fault.TIMEOUT, f"{limits.cpu_s} s of processor time were used up in {phase}", phase=phase
    )


def from_kill(exited: Exited, stage: Stage, phase: Phase, limits: Limits) -> FaultDetected:
    """The fault of a process that was killed (`was_killed`). One that held much memory is held responsible for it.

    One that held little is not responsible, unless it could have sent the signal to itself.
    """
    name = signal.Signals.SIGKILL.name
    if exited.own_rss_bytes >= limits.memory_bytes * _LARGE_SHARE:
        message = f"the operating system killed the process in {phase}, which held {exited.own_rss_bytes} bytes"
        return FaultDetected(stage, Fault.HOST_OOM_KILLED, message, phase=phase, signal=name)
    fault = Fault.SERVER_ERROR if exited.own_pids else Fault.KILLED
    return FaultDetected(
        stage, fault, f"the process was killed in {phase}, and held little memory", phase=phase, signal=name
    )


def was_killed(exited: Exited, limits: Limits) -> bool:
    """Whether a SIGKILL came neither from the forkserver nor from the CPU limit: out of memory, or a `kill -9`."""
    used_up = exited.cpu_s >= limits.cpu_s - _CPU_SLACK_S
    return exited.signal == signal.SIGKILL and not exited.killed_by_us and not used_up


def from_timeout(phase: Phase, timeout_s: float, total_s: float | None = None) -> FaultDetected:
    """The fault of a worker that did not answer in time; with `total_s`, of one that used up the candidate's time."""
    message = f"no answer within {timeout_s:g} s in {phase}"
    if total_s is not None:
        message = f"the candidate has used up the {total_s:g} s of all its calls together, in {phase}"
    return FaultDetected(stage_of(phase), Fault.TIMEOUT, message, phase=phase)
