"""A program that reads what a candidate may have written: it is started by a contained child, and watched from here.

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


class Ended(NamedTuple):
    """What a program printed, its exit code (None where a signal or the time limit ended it), what it wrote."""

    printed: str
    exit_code: int | None
    written: bytes = b""


class Compiled(NamedTuple):
    """What a compiler printed, its exit code (None as above), and the files that were asked for, by name."""

    printed: str
    exit_code: int | None
    files: dict[str, bytes]


def run_program(
    lease: socket.socket, limits: Limits, role: str, message: msgspec.Struct, timeout_s: float, *, writes: bool = False
) -> Ended:
    """Start one, and wait for its end. `writes`: its child hands over a file for it. Raises `ZygoteLost`, `Found`."""
    with _started(lease, limits, role, message) as (channel, output_fd):
        file_fd = _file_of(channel, timeout_s) if writes else None
        try:
            exited = _await_exit(lease, limits, timeout_s)
            written = b"" if file_fd is None else os.pread(file_fd, _MAX_WRITTEN_BYTES, 0)
        finally:
            if file_fd is not None:
                os.close(file_fd)
        return Ended(_printed(output_fd), exited.exit_code, written)


def run_compiler(lease: socket.socket, limits: Limits, message: CompileNative, timeout_s: float) -> Compiled:
    """Start a compiler, and wait for its end and for what it made. Raises `ZygoteLost`, `Found`."""
    deadline = time.monotonic() + timeout_s
    with _started(lease, limits, COMPILER, message) as (channel, output_fd):
        try:
            files = receive(channel, Written, timeout_s)[0].files
        except (ChannelClosed, FrameError, TimeoutError):
            files = {}  # its exit says more
            channel.close()  # it may be writing to it still
        exited = _await_exit(lease, limits, max(0.0, deadline - time.monotonic()))
        return Compiled(_printed(output_fd), exited.exit_code, files)


@contextlib.contextmanager
def _started(
    lease: socket.socket, limits: Limits, role: str, message: msgspec.Struct
) -> Iterator[tuple[socket.socket, int]]:
    """A child that was given its message: its channel, and where its output goes."""
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


def _file_of(channel: socket.socket, timeout_s: float) -> int | None:
    """The descriptor of what the program will write, from a child that hands one over before it becomes it."""
    try:
        _, fds = receive(channel, Opened, timeout_s)
    except (ChannelClosed, TimeoutError):
        return None  # its exit says more
    return fds[0]


def _await_exit(lease: socket.socket, limits: Limits, timeout_s: float) -> Exited:
    """Raises `Found` for what was killed: that says nothing of what was compiled."""
    try:
        exited, _ = receive(lease, Exited, timeout_s)
    except TimeoutError:
        send(lease, End())
        exited, _ = receive(lease, Exited)
    if fault_classification.was_killed(exited, limits):
        raise fault_classification.from_kill(exited, Stage.NOTHING, "compile", limits)
    return exited
