"""The recorder: runs a candidate's own Python once per form of inputs, without its kernels, and sends what it does.

A record is the trace of a call: operators of torch, views, and launches with their IR (`launch_capture.py`). The inputs
have the shapes, strides, dtypes and scalars of a trial, and other contents. No kernel runs here, so that nothing that
this process computes can be an answer; the trials' inputs never come here. Not trusted (`candidate_process.py`).
"""

from __future__ import annotations

import functools
import socket
from typing import Any

import torch

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.framing import ChannelClosed, receive
from weir.kernel_eval.ipc.messages import Constructed, Done, Failed, Init, Load, Record, Recorded, SendState, ToRecorder
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.recording.kept_storages import with_kept
from weir.kernel_eval.recording.launch_capture import LaunchCapture, stop_at_ttir
from weir.kernel_eval.toolchain import stub_driver
from weir.kernel_eval.toolchain.targets import named
from weir.kernel_eval.worker.candidate_process import CandidateProcess, describe_output, enter_folder
from weir.kernel_eval.worker.host_tensors import HostTensors, TensorOnHost
from weir.kernel_eval.worker.kernel_values import HostReads, KernelValues, NeedsKernelResult
from weir.kernel_eval.worker.recorder import Recorder, tensors_in

_COMPUTED_STATE = "a kernel computes a part of the model's state while it is constructed: compute it with torch there"


class RecordWorker(CandidateProcess):
    """One candidate, from its source to its last record."""

    def __init__(self, channel: socket.socket, limits: Limits, folder: str) -> None:
        self._values, self._hosts = KernelValues(), HostTensors()
        recorder = Recorder(self._values, self._hosts)
        super().__init__(channel, limits, folder, recorder, HostReads(self._values, self._hosts))
        stub = stub_driver.install(named(limits.target))
        self._capture = LaunchCapture(recorder, self._values, self._hosts, stub)
        self._loaded: Load | None = None
        self._records: list[Recorded] = []  # of the calls so far

    def serve(self) -> None:
        """Handle requests until the judge closes the channel."""
        stop_at_ttir()
        self._capture.install()
        while True:
            try:
                message: ToRecorder
                message, fds = receive(self._channel, ToRecorder)  # type: ignore[arg-type]
            except ChannelClosed:
                return
            if isinstance(message, Load):
                self._loaded = message
                self._capture.take_configurations(message)
                self.attempt("load", functools.partial(self._load, message))
            elif isinstance(message, Init):
                self.attempt("init", functools.partial(self._construct, message, fds[0]))
            elif isinstance(message, SendState):
                self.attempt("init", functools.partial(self.send_state, message, fds[0]))
            else:
                self.attempt("call", functools.partial(self._record, message, fds[0]))

    def _load(self, load: Load) -> Done | Failed:
        with self._recorder:  # which fills what a module allocates
            return self.load(load)

    def _construct(self, init: Init, fd: int) -> Constructed:
        with self._recorder:
            constructed = self.init(init, fd)
        if any(map(self._values.holds, self._state)):
            raise NeedsKernelResult(_COMPUTED_STATE)
        if isinstance(self._model, torch.nn.Module):  # as `.cuda()` does
            self._hosts.unmark([*self._model.parameters(), *self._model.buffers()])
        return constructed

    def _record(self, record: Record, fd: int) -> Recorded:
        memory = tensor_arena.attach(record.arena, fd)
        arguments = tensor_arena.read_value(memory, record.arena.arguments)
        assert self._loaded is not None
        self._capture.take_configurations(self._loaded, record.sample)
        self._capture.start()
        self._recorder.start(tensor_arena.tensors_among(arguments))
        with self._recorder, self._mode:
            answer = self._model(*arguments)
        is_sequence = isinstance(answer, list | tuple)
        outputs = list(answer) if is_sequence else [answer]
        self._check_not_on_host(outputs)
        trace = self._recorder.finish(outputs)
        described = tuple(describe_output(output, arguments) for output in outputs)
        capture, num_failed = self._capture, self._recorder.num_failed
        recorded = Recorded(described, trace, capture.irs, capture.made_of, num_failed, is_sequence)
        self._records.append(with_kept(recorded, self._recorder.kept, self._records))
        return self._records[-1]

    def _check_not_on_host(self, outputs: list[Any]) -> None:
        """Raises `TensorOnHost` if results of kernels are returned in memory of the host."""
        for output in tensors_in(outputs):
            if self._hosts.lies_on_host(output) and self._values.holds(torch.Tensor.untyped_storage(output)):
                raise TensorOnHost("an output lies in memory of the host: return it where the inputs are")


def run(limits: Limits, channel: socket.socket, folder: str) -> None:
    """Serve one judge, in a contained and freshly forked process."""
    enter_folder(limits, folder)
    RecordWorker(channel, limits, folder).serve()
