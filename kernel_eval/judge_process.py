"""`python -m weir.kernel_eval.judge_process FD LEVEL`: the forkserver of judges, each of which takes job after job.

Judges run in the same kind of bubblewrap as workers (no network, nothing of the user's to read), because tasks bring
code too; beyond that they are trusted, and not limited.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import traceback

from weir.kernel_eval import linux
from weir.kernel_eval.forkserver import Forkserver, Ready, Spawn
from weir.kernel_eval.frames import ChannelClosed, receive, send
from weir.kernel_eval.judgement import Job, Judgement
from weir.kernel_eval.leases import Leases
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.sandbox_level import SandboxLevel


def main(fd: int, level: SandboxLevel) -> None:
    """Import what judges need, say so, and fork until the server is gone."""
    linux.die_with_parent()
    import torch

    from weir.kernel_eval import judge, task_check  # noqa: F401 - imported here, once, for every judge

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=fd)
    send(control, Ready(pid=os.getpid(), seccomp=False))
    Forkserver(control, level, serve_jobs).serve()


def serve_jobs(spawn: Spawn, channel: socket.socket, folder: str) -> None:
    """In a judge: one job after the other, until the server closes the channel."""
    import torch

    from weir.kernel_eval.judge import judge
    from weir.kernel_eval.task_check import check_task

    linux.forbid_inspection()
    while True:
        try:
            job, fds = receive(channel, Job)
        except ChannelClosed:
            return
        if job.limits.gpu is not None:  # a judge has one GPU for all its life, and has not spoken to it yet
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", job.limits.gpu)
        try:
            leases = Leases(*(socket.socket(fileno=fd) for fd in fds))
            with contextlib.closing(leases):
                judgement = check_task(job) if job.checks_task else judge(job, leases)
        except torch.AcceleratorError as error:
            judgement = Judgement(stage=Stage.NOTHING, fault=Fault.GPU_UNHEALTHY, message=f"the GPU failed: {error}")
        except Exception as error:  # the process's edge: it is reported, with its traceback
            judgement = Judgement(
                stage=Stage.NOTHING,
                fault=Fault.SERVER_ERROR,
                message=f"the judge failed: {type(error).__name__}: {error}",
                details={"traceback": traceback.format_exc()},
            )
        send(channel, judgement)
        if judgement.fault is Fault.GPU_UNHEALTHY:
            return  # what this process holds of the GPU is of no use any more


if __name__ == "__main__":
    main(int(sys.argv[1]), SandboxLevel(sys.argv[2]))
