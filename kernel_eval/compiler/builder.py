"""The builder: compiles the launches of a trace for a target, in a process that runs no code of the candidate.

The kernels are those that were extracted from the checked source, and the launches those that the proof replays, with
their types, alignments, meta-parameters and options. So the kernels that gave the answer are compiled, and the
candidate cannot influence that. The launches' memory is reserved, but never written. Contained like every worker,
because a compiler that reads a candidate's text may have bugs.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from typing import Any

import torch

from weir.kernel_eval.compiler.compile_worker import Builds
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import Build, Compiled
from weir.kernel_eval.ipc.trace import Launch, places
from weir.kernel_eval.toolchain import stub_driver
from weir.kernel_eval.toolchain.targets import TARGETS
from weir.kernel_eval.worker.replay_values import end_bytes, import_kernels, value_of


def run(channel: socket.socket, folder: str) -> None:
    """Serve one request, in a contained and freshly forked process."""
    os.chdir(folder)
    os.environ["TMPDIR"] = os.environ["HOME"] = folder
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    gc.enable()
    message, _ = receive(channel, Build)
    compiled = build(message, folder)
    sys.stdout.flush()
    sys.stderr.flush()
    send(channel, compiled)


def build(message: Build, folder: str) -> Compiled:
    """Compile each launch, up to the first that is refused."""
    kernels = import_kernels(message.kernels, folder)
    name = ""
    builds = Builds(stub_driver.install(TARGETS[message.target]), lambda kernel: name)
    builds.install()
    stopped = None
    for launch in message.launches:
        name = launch.name
        try:
            _compile(kernels, launch)
        except Exception as error:  # also in `builds.refused`, if the kernel is at fault
            stopped = f"{type(error).__name__}: {error}"
            break
    return Compiled(tuple(builds.built), tuple(builds.refused.values()), stopped)


def _compile(kernels: Any, launch: Launch) -> None:
    storages = _unwritten_storages(launch)
    arguments = {
        name: value_of(value, storages, kernels) for name, value in (launch.arguments | launch.options).items()
    }
    getattr(kernels, launch.kernel)[launch.grid](**arguments)


def _unwritten_storages(launch: Launch) -> dict[int, torch.Tensor]:
    """Reserved, unwritten memory for every tensor of a launch, by position in the trace."""
    ends: dict[int, int] = {}
    for place in places(list(launch.arguments.values())):
        ends[place.storage] = max(ends.get(place.storage, 0), end_bytes(place))
    return {storage: torch.empty(size, dtype=torch.uint8) for storage, size in ends.items()}
