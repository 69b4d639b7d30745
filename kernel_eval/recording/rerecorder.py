"""The rerecorder: gives the launches of a GPU's record their IR, for a second opinion of a CPU (`cross_check`).

The kernels are those of the proof, taken from the candidate's source as text, and so is what their launches are given.
No kernel runs here, and operators stay as the record has them.
"""

from __future__ import annotations

import socket

import torch

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import Rerecord, Rerecorded
from weir.kernel_eval.ipc.trace import Launch, Trace
from weir.kernel_eval.recording.launch_capture import LaunchCapture, stop_at_ttir
from weir.kernel_eval.replay.steps import fresh_storages
from weir.kernel_eval.toolchain import scratch_folder, stub_driver
from weir.kernel_eval.toolchain.targets import named
from weir.kernel_eval.worker.candidate import load_candidate
from weir.kernel_eval.worker.gpu_replayer import launch_value
from weir.kernel_eval.worker.host_tensors import HostTensors
from weir.kernel_eval.worker.kernel_values import KernelValues
from weir.kernel_eval.worker.recorder import Recorder

_FAILURE_CHARS = 2000


def run(channel: socket.socket, folder: str) -> None:
    """Serve one request, in a contained and freshly forked process."""
    scratch_folder.enter(folder)
    message, fds = receive(channel, Rerecord)
    try:
        with torch.no_grad():
            reply = rerecord(message, tensor_arena.attach(message.arena, fds[0]), folder)
    except Exception as error:  # a kernel that a CPU's driver cannot be asked for, or one that does not compile for it
        reply = Rerecorded(message.trace, (), f"{type(error).__name__}: {error}"[-_FAILURE_CHARS:])
    send(channel, reply)


def rerecord(message: Rerecord, memory: tensor_arena.Memory, folder: str) -> Rerecorded:
    """The record with IR. Raises whatever Triton's front end raises, and ValueError for arguments of other types."""
    stub = stub_driver.install(named(message.target))
    values, hosts = KernelValues(), HostTensors()
    recorder = Recorder(values, hosts)
    capture = LaunchCapture(recorder, values, hosts, stub)
    stop_at_ttir()
    capture.install()
    module = load_candidate(message.kernels, folder)
    trace = message.trace
    storages = fresh_storages(trace, memory, message.arena)
    recorder.start(storages)  # so that what is captured names the storages as the record does
    capture.start()
    for step in trace.steps:
        if isinstance(step, Launch):
            given = step.arguments | step.options
            arguments = {name: launch_value(value, storages, module) for name, value in given.items()}
            getattr(module, step.kernel)[step.grid](**arguments)
    launches = iter(recorder.finish([]).steps)
    steps = tuple(next(launches) if isinstance(step, Launch) else step for step in trace.steps)
    return Rerecorded(Trace(trace.storages, steps, trace.outputs), capture.irs)
