"""The collector: runs a candidate's model with torch's extension compilers replaced, and sends the sources they get.

`load_inline`, `load` and `torch.cuda._compile_kernel` record the sources and return a stand-in, whose functions end the
call, since there is no device to run them. As untrusted and as contained as a worker; it starts no program, and its
result is text that a compiler in another process reads.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import traceback
from typing import Any

import torch

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import Collect, Collected, Failed, Phase
from weir.kernel_eval.tasks.device_mapping import CpuForCuda
from weir.kernel_eval.tasks.seeds import seed_everything
from weir.kernel_eval.toolchain import stub_driver
from weir.kernel_eval.toolchain.native_source import NativeModule, NativeSource
from weir.kernel_eval.toolchain.targets import TARGETS
from weir.kernel_eval.worker.candidate import entry_point, load_candidate
from weir.kernel_eval.worker.extension_calls import ExtensionCalls

_MESSAGE_CHARS = 2000


class NotRun(BaseException):
    """A function of an extension was called, which cannot run without a device. A BaseException, so that a candidate
    that catches errors does not catch it."""


class _Extension:
    """Stands for a compiled module or kernel."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotRun


class Collector:
    """Collects the sources that are given to compilers."""

    def __init__(self) -> None:
        self.sources: list[NativeSource] = []

    def collect(self, module: NativeModule) -> _Extension:
        """Record a module's sources, instead of building it."""
        self.sources += module.pieces
        return _Extension()


def run(channel: socket.socket, folder: str) -> None:
    """Serve one request, in a contained and freshly forked process."""
    os.chdir(folder)
    os.environ["TMPDIR"] = os.environ["HOME"] = folder
    gc.enable()
    message, fds = receive(channel, Collect)
    collector = Collector()
    ExtensionCalls(collector.collect).install()
    stub_driver.install(TARGETS[message.target])
    reply = _run_model(message, fds, folder, collector)
    sys.stdout.flush()
    sys.stderr.flush()
    send(channel, reply)


def _run_model(message: Collect, fds: list[int], folder: str, collector: Collector) -> Collected | Failed:
    """Import, construct and call the model, until a function of an extension is reached."""
    phase: Phase = "load"
    try:
        init = tensor_arena.read_value(tensor_arena.attach(message.init, fds[0]), message.init.arguments)
        inputs = tensor_arena.read_value(tensor_arena.attach(message.call, fds[1]), message.call.arguments)
        with torch.no_grad(), CpuForCuda():
            model_class: Any = entry_point(load_candidate(message.source, folder))
            phase = "entry_point"
            if model_class is None:
                raise AttributeError("the candidate defines no class ModelNew")
            phase = "init"
            seed_everything(message.weight_seed)
            model = model_class(*init)
            phase = "call"
            model(*inputs)
    except NotRun:
        pass
    except BaseException as error:  # a candidate may raise anything, SystemExit too
        if phase != "call" or not collector.sources:
            text = "".join(traceback.format_exception(error, limit=-8))
            return Failed(phase, type(error).__name__, str(error)[:_MESSAGE_CHARS], text[-_MESSAGE_CHARS:])
    return Collected(tuple(collector.sources))
