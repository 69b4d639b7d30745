"""A judge's connection to one worker: has it forked, sends it requests one at a time, and waits for its end.

Limits are of wall time without that in which the worker waited for a processor: a machine's other work makes no
candidate slow. Invariant: `request` returns a message of the expected type or raises `FaultDetected`; when `end` has
returned, no process of the worker is left, and its output is complete.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from weir.kernel_eval.ipc import framing
from weir.kernel_eval.ipc.forkserver import AskRunDelay, End, Exited, RunDelay, Spawn
from weir.kernel_eval.ipc.framing import ChannelClosed, FrameError
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
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage

_TAIL_BYTES = 2000
_MAX_REPLY_BYTES = 4 << 20  # a trace of thousands of launches
_GRACE_S = 0.25
_END_TIMEOUT_S = 20.0
_LEAST_DELAY_S = 0.01  # a shorter wait for a processor does not extend a limit
_FRAME_TIMEOUT_S = 2.0  # at least, for the rest of a reply that has begun

RequestHandler = Callable[[Assemble | BuildNative], Assembled | BuiltNative]  # answers a GPU worker's own requests
Reply = TypeVar("Reply", bound=msgspec.Struct)


class ZygoteLost(Exception):
    """The process that forks workers is gone, so that the candidate cannot be judged."""


class WorkerChannel:
    """One worker, from its fork to its end. The owner must call `end` and `close`."""

    def __init__(
        self,
        lease: socket.socket,
        limits: Limits,
        deadline: Deadline,
        role: str = "",
        handle_request: RequestHandler | None = None,
    ) -> None:
        self._lease = lease
        self._deadline = deadline
        self._handle_request = handle_request
        self._limits = limits
        self._exited: Exited | None = None
        self._is_ending = False
        self._is_left = False
        self._delay_s = 0.0  # that the worker waited for a processor, as far as limits were extended for it
        self._output_fd = os.memfd_create("weir-output", os.MFD_CLOEXEC)
        self._channel, worker_end = socket.socketpair()
        with worker_end:
            try:
                framing.send(lease, Spawn(limits=limits, role=role), (worker_end.fileno(), self._output_fd))
            except ChannelClosed as error:
                raise ZygoteLost from error

    def request(
        self,
        message: msgspec.Struct,
        kind: type[Reply],
        phase: Phase,
        timeout_s: float,
        fd: int | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Reply:
        """Send a message, do something meanwhile, and wait for the reply.

        Raises `FaultDetected` unless the reply is of `kind`, and `ZygoteLost`.
        """
        self._channel.settimeout(max(min(timeout_s, self._deadline.left_s), 0.001))
        try:
            with self._deadline.waiting():
                self.send(message, () if fd is None else (fd,))
        except TimeoutError:
            raise self._timeout(phase, timeout_s) from None
        except ChannelClosed:
            raise fault_classification.from_exit(self.end(_GRACE_S), phase, self._limits) from None
        meanwhile()
        return self.receive(kind, phase, timeout_s)

    def prepare(self, timeout_s: float) -> None:
        """Have the worker initialise its GPU before it loads a candidate. Raises `FaultDetected` (`gpu_unhealthy`)."""
        try:
            self.request(Prepare(), Done, "load", timeout_s)
        except FaultDetected as error:
            message = f"a worker cannot use the GPU: {error.message}"
            raise FaultDetected(Stage.NOTHING, Fault.GPU_UNHEALTHY, message, **error.details) from None

    def send(self, message: msgspec.Struct, fds: tuple[int, ...]) -> None:
        """Send one message; `receive` returns its reply."""
        framing.send(self._channel, message, fds)

    def receive(self, kind: type[Reply], phase: Phase, timeout_s: float, max_bytes: int = _MAX_REPLY_BYTES) -> Reply:
        """Wait for the reply to one message. Raises as `request` does."""
        try:
            with self._deadline.waiting():
                reply = self._next_reply(time.monotonic() + min(timeout_s, self._deadline.left_s), max_bytes)
        except TimeoutError:
            raise self._timeout(phase, timeout_s) from None
        except FrameError as error:
            stage = fault_classification.stage_of(phase)
            raise FaultDetected(stage, Fault.PROTOCOL_ERROR, str(error), phase=phase) from None
        except ChannelClosed:
            raise fault_classification.from_exit(self.end(_GRACE_S), phase, self._limits) from None
        if isinstance(reply, Failed):
            raise fault_classification.from_exception(msgspec.structs.replace(reply, phase=_true_phase(reply, phase)))
        if not isinstance(reply, kind):
            raise FaultDetected(
                fault_classification.stage_of(phase),
                Fault.PROTOCOL_ERROR,
                f"the worker sent {type(reply).__name__} in {phase}",
                phase=phase,
            )
        return reply

    def _timeout(self, phase: Phase, timeout_s: float) -> FaultDetected:
        """The fault for the limit that was reached: that of the call, or that of all calls together."""
        total_s = None if self._deadline.left_s else self._deadline.total_s
        return fault_classification.from_timeout(phase, timeout_s, total_s)

    def _next_reply(self, due: float, max_bytes: int) -> FromWorker:
        """The next message that is a reply. The worker's own requests are handled first; that time is not counted."""
        while True:
            reply: FromWorker
            due = self._wait_for_reply(due)
            left_s = max(due - time.monotonic(), _FRAME_TIMEOUT_S)
            reply, fds = framing.receive(self._channel, FromWorker, left_s, max_bytes)  # type: ignore[arg-type]
            for stray in fds:
                os.close(stray)
            if self._handle_request is None or not isinstance(reply, Assemble | BuildNative):
                return reply
            started = time.monotonic()
            answer = self._handle_request(reply)
            took_s = time.monotonic() - started
            due += took_s
            self._deadline.refund(took_s)
            self._channel.settimeout(max(due - time.monotonic(), 0.001))
            framing.send(self._channel, answer)

    def _wait_for_reply(self, due: float) -> float:
        """Wait until a reply begins; the time until when the worker has for it. Raises TimeoutError."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        while not poll.poll(max(0.0, due - time.monotonic()) * 1000):
            delay_s = self._deadline.extend(self._new_delay_s())
            if delay_s < _LEAST_DELAY_S:
                raise TimeoutError
            due += delay_s
        return due

    def _new_delay_s(self) -> float:
        """The seconds that the worker waited for a processor, without those that were asked for before."""
        try:
            framing.send(self._lease, AskRunDelay())
            first: RunDelay | Exited
            first, _ = framing.receive(self._lease, RunDelay | Exited, _END_TIMEOUT_S)  # type: ignore[arg-type]
            if isinstance(first, Exited):  # it ended meanwhile
                self._exited = first
                delay, _ = framing.receive(self._lease, RunDelay, _END_TIMEOUT_S)
            else:
                delay = first
        except (ChannelClosed, TimeoutError) as error:
            raise ZygoteLost from error
        before, self._delay_s = self._delay_s, delay.seconds
        return max(0.0, delay.seconds - before)

    @property
    def has_reply(self) -> bool:
        """Whether a reply has begun, or the worker is gone, so that `receive` would not wait for either."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        return bool(poll.poll(0))

    def begin_end(self, grace_s: float = 0.0) -> None:
        """Have the worker ended; `end` waits until it is gone, which takes milliseconds. Raises `ZygoteLost`."""
        if self._exited is not None or self._is_ending:
            return
        try:
            framing.send(self._lease, End(grace_s=grace_s))
        except ChannelClosed as error:
            raise ZygoteLost from error
        self._is_ending = True

    def leave(self) -> None:
        """Have the worker ended, and wait for that nowhere: no other may be forked under its lease.

        Raises `ZygoteLost`.
        """
        self.begin_end()
        self._is_left = True

    def end(self, grace_s: float = 0.0) -> Exited:
        """End the worker, and wait until it is gone. May be called again. Raises `ZygoteLost`."""
        if self._exited is not None:
            return self._exited
        self.begin_end(grace_s)
        try:
            exited, _ = framing.receive(self._lease, Exited, _END_TIMEOUT_S)
        except (ChannelClosed, TimeoutError) as error:
            raise ZygoteLost from error
        self._exited = exited
        self._channel.close()
        return exited

    @property
    def output_bytes(self) -> int:
        """Size of the candidate's output so far."""
        return os.fstat(self._output_fd).st_size

    def output_tail(self) -> str:
        """The end of the candidate's output, stdout and stderr together."""
        start = max(0, self.output_bytes - _TAIL_BYTES)
        return os.pread(self._output_fd, _TAIL_BYTES, start).decode(errors="replace")

    def end_and_close(self) -> None:
        """Wait until the worker is gone, unless it was left, and close what `close` does. Raises `ZygoteLost`."""
        try:
            if not self._is_left:
                self.end()
        finally:
            self.close()

    def close(self) -> None:
        """Close all descriptors but the lease, under which another worker may be forked."""
        self._channel.close()
        os.close(self._output_fd)


def _true_phase(failed: Failed, requested: Phase) -> Phase:
    """The phase of a failure: the requested one, which a worker can only refine if it is "load"."""
    return "entry_point" if requested == "load" and failed.phase == "entry_point" else requested
