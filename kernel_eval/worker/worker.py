"""The worker on a GPU: calls a candidate with the tensors that the judge sends, and writes its raw answers back.

It is never trusted (`candidate_process.py`): its reports (launches, overruns, exceptions) concern only the candidate
that could have forged them, and the judge compares the answers. For candidates in native code; a player runs all else
(`replay/device/player.py`).
"""

from __future__ import annotations

import functools
import socket

import torch

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.framing import ChannelClosed, receive
from weir.kernel_eval.ipc.messages import (
    Answered,
    ArenaSpec,
    Call,
    Done,
    FromJudge,
    Init,
    Load,
    Prepare,
    SendState,
)
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.worker import remote_assembler, triton_launcher
from weir.kernel_eval.worker.candidate_process import CandidateProcess, describe_output, enter_folder
from weir.kernel_eval.worker.guard_zones import GuardedAllocations
from weir.kernel_eval.worker.recorder import Recorder


class Worker(CandidateProcess):
    """One candidate, from its source to its last answer."""

    def __init__(self, channel: socket.socket, limits: Limits, folder: str) -> None:
        self._allocations = GuardedAllocations(limits.guard_bytes)
        super().__init__(channel, limits, folder, Recorder(), self._allocations)
        self._target = limits.target
        self._answers: list[tuple[tensor_arena.Memory, ArenaSpec, list[torch.Tensor]]] = []

    def serve(self) -> None:
        """Handle requests until the judge closes the channel."""
        from weir.kernel_eval.worker.remote_compiler import RemoteCompiler  # imports setuptools: only its zygote does

        self._recorder.install()
        remote_assembler.install(self._channel, self._target)
        triton_launcher.install()
        RemoteCompiler(self._channel, self._recorder, self._folder).install()
        while True:
            try:
                message: FromJudge
                message, fds = receive(self._channel, FromJudge)  # type: ignore[arg-type]
            except ChannelClosed:
                return
            if isinstance(message, Prepare):
                self.attempt("load", Done)  # `attempt` waits for the device
            elif isinstance(message, Load):
                self.attempt("load", functools.partial(self.load, message))
            elif isinstance(message, Init):
                self.attempt("init", functools.partial(self.init, message, fds[0]))
            elif isinstance(message, Call):
                self.attempt("call", functools.partial(self._call, message, fds[0]))
            elif isinstance(message, SendState):
                self.attempt("init", functools.partial(self.send_state, message, fds[0]))
            else:
                self.attempt("call", self._write_again)

    def _call(self, call: Call, fd: int) -> Answered:
        memory = tensor_arena.attach(call.arena, fd)
        arguments = tensor_arena.read_value(memory, call.arena.arguments)
        self._recorder.start(tensor_arena.tensors_among(arguments))
        with self._recorder, self._mode:
            answer = self._model(*arguments)
        outputs = list(answer) if isinstance(answer, list | tuple) else [answer]
        trace = self._recorder.finish(outputs)
        self._answers.append((memory, call.arena, outputs))
        self._write(memory, call.arena, outputs)
        return Answered(
            tuple(describe_output(output, arguments) for output in outputs),
            trace,
            self._allocations.take_overrun(),
            isinstance(answer, list | tuple),
        )

    def _write(self, memory: tensor_arena.Memory, spec: ArenaSpec, outputs: list[torch.Tensor]) -> None:
        for output, place in zip(outputs, spec.outputs, strict=False):
            if isinstance(output, torch.Tensor) and tuple(output.shape) == place.shape and output.numel():
                tensor_arena.flat_view(memory, place).view(place.shape).copy_(output)

    def _write_again(self) -> Done:
        for memory, spec, outputs in self._answers:
            self._write(memory, spec, outputs)
        return Done()


def run(limits: Limits, channel: socket.socket, folder: str) -> None:
    """Serve one judge, in a contained and freshly forked process."""
    enter_folder(limits, folder)
    Worker(channel, limits, folder).serve()
