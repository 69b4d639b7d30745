"""A judge's hold on one worker: has it forked, asks it one thing at a time, and sees it to its end.

Invariant: `ask` returns a message of the expected kind or raises `Found`; when `end` has returned, nothing of the
worker is left, and what it printed is known.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from weir.kernel_eval.ipc.forkserver import End, Exited, Spawn
from weir.kernel_eval.ipc.framing import ChannelClosed, FrameError, receive, send
from weir.kernel_eval.ipc.messages import (
    Assemble,
    Assembled,
    BuildNative,
    BuiltNative,
    Done,
    Failed,
    FromWorker,
    Phase,
    Prepare,
)
from weir.kernel_eval.judge.channel import fault_classification
from weir.kernel_eval.judge.channel.deadline import Patience
from weir.kernel_eval.judge.channel.job import Found
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage

_TAIL_BYTES = 2000
_MAX_REPLY_BYTES = 4 << 20  # a trace of thousands of launches
_GRACE_S = 0.25
_END_TIMEOUT_S = 20.0

Serve = Callable[[Assemble | BuildNative], Assembled | BuiltNative]  # what a worker on a GPU asks of its judge
Reply = TypeVar("Reply", bound=msgspec.Struct)


class ZygoteLost(Exception):
    """The process that forks workers is gone: nothing can be said of the candidate."""


class WorkerChannel:
    """One worker, from its fork to its end. `end` must be called."""

    def __init__(
        self,
        lease: socket.socket,
        limits: Limits,
        patience: Patience,
        role: str = "",
        serve: Serve | None = None,
    ) -> None:
        self._lease = lease
        self._patience = patience
        self._serve = serve
        self._limits = limits
        self._exited: Exited | None = None
        self._output_fd = os.memfd_create("weir-output", os.MFD_CLOEXEC)
        self._channel, worker_end = socket.socketpair()
        with worker_end:
            try:
                send(lease, Spawn(limits=limits, role=role), (worker_end.fileno(), self._output_fd))
            except ChannelClosed as error:
                raise ZygoteLost from error

    def ask(
        self, message: msgspec.Struct, kind: type[Reply], phase: Phase, timeout_s: float, fd: int | None = None
    ) -> Reply:
        """One question and its answer. Raises `Found` for anything but an answer of `kind`, and `ZygoteLost`."""
        self._channel.settimeout(max(min(timeout_s, self._patience.left_s), 0.001))
        try:
            with self._patience.waiting():
                self.tell(message, () if fd is None else (fd,))
        except TimeoutError:
            raise self._timeout(phase, timeout_s) from None
        except ChannelClosed:
            raise fault_classification.from_exit(self.end(_GRACE_S), phase, self._limits) from None
        return self.hear(kind, phase, timeout_s)

    def prepare(self, timeout_s: float) -> None:
        """Have a worker reach its GPU before it sees a candidate. Raises `Found`, with a fault of ours."""
        try:
            self.ask(Prepare(), Done, "load", timeout_s)
        except Found as found:
            message = f"a worker cannot use the GPU: {found.message}"
            raise Found(Stage.NOTHING, Fault.GPU_UNHEALTHY, message, **found.details) from None

    def tell(self, message: msgspec.Struct, fds: tuple[int, ...]) -> None:
        """One question; `hear` has its answer."""
        send(self._channel, message, fds)

    def hear(self, kind: type[Reply], phase: Phase, timeout_s: float, max_bytes: int = _MAX_REPLY_BYTES) -> Reply:
        """The answer to one question. Raises as `ask` does."""
        try:
            with self._patience.waiting():
                reply = self._receive(time.monotonic() + min(timeout_s, self._patience.left_s), max_bytes)
        except TimeoutError:
            raise self._timeout(phase, timeout_s) from None
        except FrameError as error:
            raise Found(fault_classification.stage_of(phase), Fault.PROTOCOL_ERROR, str(error), phase=phase) from None
        except ChannelClosed:
            raise fault_classification.from_exit(self.end(_GRACE_S), phase, self._limits) from None
        if isinstance(reply, Failed):
            raise fault_classification.from_exception(msgspec.structs.replace(reply, phase=_true_phase(reply, phase)))
        if not isinstance(reply, kind):
            raise Found(
                fault_classification.stage_of(phase),
                Fault.PROTOCOL_ERROR,
                f"the worker sent {type(reply).__name__} in {phase}",
                phase=phase,
            )
        return reply

    def _timeout(self, phase: Phase, timeout_s: float) -> Found:
        """Which of the two limits was reached."""
        patience = self._patience
        return fault_classification.from_timeout(phase, timeout_s, None if patience.left_s else patience.total_s)

    def _receive(self, deadline: float, max_bytes: int) -> FromWorker:
        """The next message that is no request; requests are answered on the way, at no cost of the worker's time."""
        while True:
            reply: FromWorker
            left_s = max(deadline - time.monotonic(), 0.0)
            reply, fds = receive(self._channel, FromWorker, left_s, max_bytes)  # type: ignore[arg-type]
            for stray in fds:
                os.close(stray)
            if self._serve is None or not isinstance(reply, Assemble | BuildNative):
                return reply
            asked = time.monotonic()
            answer = self._serve(reply)
            took_s = time.monotonic() - asked
            deadline += took_s
            self._patience.give_back(took_s)
            self._channel.settimeout(max(deadline - time.monotonic(), 0.001))
            send(self._channel, answer)

    def end(self, grace_s: float = 0.0) -> Exited:
        """Have the worker ended, and wait until it is. May be called again."""
        if self._exited is not None:
            return self._exited
        try:
            send(self._lease, End(grace_s=grace_s))
            exited, _ = receive(self._lease, Exited, _END_TIMEOUT_S)
        except (ChannelClosed, TimeoutError) as error:
            raise ZygoteLost from error
        self._exited = exited
        self._channel.close()
        return exited

    @property
    def output_bytes(self) -> int:
        """How much the candidate printed."""
        return os.fstat(self._output_fd).st_size

    def output_tail(self) -> str:
        """The end of what the candidate printed, stdout and stderr together."""
        start = max(0, self.output_bytes - _TAIL_BYTES)
        return os.pread(self._output_fd, _TAIL_BYTES, start).decode(errors="replace")

    def close(self) -> None:
        """Give back the descriptors, but for the lease: another worker may be forked under it when this one ended."""
        self._channel.close()
        os.close(self._output_fd)


def _true_phase(failed: Failed, asked: Phase) -> Phase:
    """The judge knows what it asked for; a worker can only refine "load"."""
    return "entry_point" if asked == "load" and failed.phase == "entry_point" else asked
