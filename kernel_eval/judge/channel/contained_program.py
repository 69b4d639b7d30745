"""Runs a compiler or assembler on text that a candidate may have written: a contained child becomes the program.

Used for NVIDIA's assembler and for compilers of CUDA C++. The child runs no code of a candidate; the command line comes
from the judge.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from weir.kernel_eval.ipc.forkserver import COMPILER, End, Exited, Spawn
from weir.kernel_eval.ipc.framing import ChannelClosed, FrameError, receive, send
from weir.kernel_eval.ipc.messages import CompileNative, Opened, Written
from weir.kernel_eval.judge.channel import fault_classification
from weir.kernel_eval.judge.channel.worker_channel import ZygoteLost
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.reward import Stage

_MAX_PRINTED_BYTES = 256 << 10
_MAX_WRITTEN_BYTES = 16 << 20


class ProgramRun(NamedTuple):
    """A program's output, its exit code (None if a signal or the time limit ended it), and the file that it wrote."""

    printed: str
    exit_code: int | None
    written: bytes = b""


class CompilerRun(NamedTuple):
    """A compiler's output, its exit code (None as in `ProgramRun`), and the requested files by name."""

    printed: str
    exit_code: int | None
    files: dict[str, bytes]


def run_program(
    lease: socket.socket, limits: Limits, role: str, message: msgspec.Struct, timeout_s: float, *, writes: bool = False
) -> ProgramRun:
    """Start a program, and wait for its end. With `writes`, its child sends the descriptor of its output file first.

    Raises `ZygoteLost`, and `FaultDetected` if the operating system killed it.
    """
    with contextlib.closing(RunningProgram(lease, limits, role, message)) as program:
        return program.result(timeout_s, writes=writes)


class RunningProgram:
    """A program, started by the constructor. The owner must call `close`. Raises as `run_program` does."""

    def __init__(self, lease: socket.socket, limits: Limits, role: str, message: msgspec.Struct) -> None:
        self._lease = lease
        self._limits = limits
        self._has_ended = False
        self._closing = contextlib.ExitStack()
        self._channel, self._output_fd = self._closing.enter_context(_started(lease, limits, role, message))

    def result(self, timeout_s: float, *, writes: bool = False) -> ProgramRun:
        """Wait for the program's end; with `writes`, as in `run_program`. Raises `ZygoteLost`."""
        try:
            file_fd = _receive_file(self._channel, timeout_s) if writes else None
            try:
                self._has_ended = True  # or is ended by what waits for it
                exited = _await_exit(self._lease, self._limits, timeout_s)
                written = b"" if file_fd is None else os.pread(file_fd, _MAX_WRITTEN_BYTES, 0)
            finally:
                if file_fd is not None:
                    os.close(file_fd)
        except ChannelClosed as error:
            raise ZygoteLost from error
        return ProgramRun(_printed(self._output_fd), exited.exit_code, written)

    def close(self) -> None:
        """End the program if nobody has waited for it, and close its descriptors. Raises `ZygoteLost`."""
        with self._closing:
            if not self._has_ended:
                self._has_ended = True
                try:
                    send(self._lease, End())
                    receive(self._lease, Exited)
                except ChannelClosed as error:
                    raise ZygoteLost from error


def run_compiler(lease: socket.socket, limits: Limits, message: CompileNative, timeout_s: float) -> CompilerRun:
    """Start a compiler, and wait for its files and its end. Raises as `run_program` does."""
    deadline = time.monotonic() + timeout_s
    with _started(lease, limits, COMPILER, message) as (channel, output_fd):
        try:
            files = receive(channel, Written, timeout_s)[0].files
        except (ChannelClosed, FrameError, TimeoutError):
            files = {}  # the exit code and the output give the reason
            channel.close()  # unblocks a child that is still writing to it
        exited = _await_exit(lease, limits, max(0.0, deadline - time.monotonic()))
        return CompilerRun(_printed(output_fd), exited.exit_code, files)


@contextlib.contextmanager
def _started(
    lease: socket.socket, limits: Limits, role: str, message: msgspec.Struct
) -> Iterator[tuple[socket.socket, int]]:
    """Fork a child and send it its message. Yields the child's channel and the descriptor of its output."""
    output_fd = os.memfd_create("weir-program", os.MFD_CLOEXEC)
    channel, child_end = socket.socketpair()
    try:
        with channel:
            with child_end:
                send(lease, Spawn(limits=limits, role=role), (child_end.fileno(), output_fd))
            send(channel, message)
            yield channel, output_fd
    except ChannelClosed as error:
        raise ZygoteLost from error
    finally:
        os.close(output_fd)


def _printed(output_fd: int) -> str:
    return os.pread(output_fd, _MAX_PRINTED_BYTES, 0).decode(errors="replace")


def _receive_file(channel: socket.socket, timeout_s: float) -> int | None:
    """The descriptor of the output file, sent by the child before exec; None if the child ended without sending it."""
    try:
        _, fds = receive(channel, Opened, timeout_s)
    except (ChannelClosed, TimeoutError):
        return None  # the exit code and the output give the reason
    return fds[0]


def _await_exit(lease: socket.socket, limits: Limits, timeout_s: float) -> Exited:
    """Wait for the end, and force it after the timeout.

    Raises `FaultDetected` if the operating system killed the program, which is no result of the compilation.
    """
    try:
        exited, _ = receive(lease, Exited, timeout_s)
    except TimeoutError:
        send(lease, End())
        exited, _ = receive(lease, Exited)
    if fault_classification.was_killed(exited, limits):
        raise fault_classification.from_kill(exited, Stage.NOTHING, "compile", limits)
    return exited
