"""The builder: compiles the launches of a trace for a target, in a process that has seen nothing of the candidate.

The kernels are those that `kernel_source.py` took out of the source, and the launches those that the proof runs: what
is compiled here is what gave the answer, with its types, alignments, meta-parameters and options. A candidate has no
process here in which it could say otherwise. Memory is not needed for it and not touched. Contained like every worker,
because a compiler that reads what a candidate wrote may have faults of its own.
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
    """What a contained, freshly forked process does: one question, one answer."""
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
    """Compile each launch; the first that is refused ends it."""
    kernels = import_kernels(message.kernels, folder)
    name = ""
    builds = Builds(stub_driver.install(TARGETS[message.target]), lambda kernel: name)
    builds.install()
    stopped = None
    for launch in message.launches:
        name = launch.name
        try:
            _compile(kernels, launch)
        except Exception as error:  # kept in `builds.refused`, where it is about the kernel
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
    """Memory for every tensor of a launch, which is reserved and never written; by position in the trace."""
    ends: dict[int, int] = {}
    for place in places(list(launch.arguments.values())):
        ends[place.storage] = max(ends.get(place.storage, 0), end_bytes(place))
    return {storage: torch.empty(size, dtype=torch.uint8) for storage, size in ends.items()}
