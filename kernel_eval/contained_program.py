"""A program that reads what a candidate may have written: it is started by a contained child, and watched from here.

Used for NVIDIA's assembler and for compilers of CUDA C++. The child runs no code of a candidate; the command line comes
from the judge.
"""

from __future__ import annotations

import os
import socket

import msgspec

from weir.kernel_eval.forkserver import End, Exited, Spawn
from weir.kernel_eval.frames import ChannelClosed, receive, send
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.worker_channel import ZygoteLost

_MAX_PRINTED_BYTES = 256 << 10


def run_program(
    lease: socket.socket, limits: Limits, role: str, message: msgspec.Struct, timeout_s: float
) -> tuple[str, int | None]:
    """What it printed, and its exit code; None where a signal or the time limit ended it. Raises `ZygoteLost`."""
    output_fd = os.memfd_create("weir-program", os.MFD_CLOEXEC)
    channel, child_end = socket.socketpair()
    try:
        with channel, child_end:
            send(lease, Spawn(limits=limits, role=role), (child_end.fileno(), output_fd))
            send(channel, message)
            exited = _await_exit(lease, timeout_s)
        return os.pread(output_fd, _MAX_PRINTED_BYTES, 0).decode(errors="replace"), exited.exit_code
    except ChannelClosed as error:
        raise ZygoteLost from error
    finally:
        os.close(output_fd)


def _await_exit(lease: socket.socket, timeout_s: float) -> Exited:
    try:
        exited, _ = receive(lease, Exited, timeout_s)
    except TimeoutError:
        send(lease, End())
        exited, _ = receive(lease, Exited)
    return exited
