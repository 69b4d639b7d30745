"""`python -m weir.kernel_eval.zygotes.judge FD LEVEL`: the forkserver of judges, each of which takes job after job.

Judges are contained as workers are (no network, no processes, a small tmpfs, bounded memory), because tasks bring code
too; they may hold more memory and more files, and use the processor until their evaluation's time is over. Invariant:
the jobs of one judge are of one task, so that what a task's code does to its process reaches no other (`pool.py`).
Not so on a GPU, where making a context costs seconds: there a judge takes the jobs of all tasks, and is not limited.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import sys
import traceback
from collections.abc import Callable

from weir.kernel_eval.ipc.forkserver import Exited, Forkserver, Leases, Ready, Spawn
from weir.kernel_eval.ipc.framing import ChannelClosed, learn, receive, send
from weir.kernel_eval.ipc.messages import FromWorker, Opened
from weir.kernel_eval.judge.channel.job import Job, Judgement
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.sandbox import containment, huge_pages, seccomp, syscalls
from weir.kernel_eval.sandbox.levels import SandboxLevel


def main(fd: int, level: SandboxLevel) -> None:
    """Import what judges need, say so, and fork until the server is gone."""
    syscalls.die_with_parent()
    import torch

    from weir.kernel_eval.judge import (
        task_check,  # noqa: F401 - imported here, once, for every judge
        warm_up,
    )

    torch.set_num_threads(1)
    warm_up.warm_up()  # also reads /proc/cpuinfo, which a judge cannot
    learn(Job, FromWorker, Exited, Opened)
    gc.collect()
    gc.freeze()
    num_huge = huge_pages.gather()
    control = socket.socket(fileno=fd)
    allowed = ("memfd_create", "socketpair")  # arenas, channels
    filters = {on_gpu: seccomp.build(allowed, on_gpu=on_gpu) for on_gpu in (False, True)}
    send(control, Ready(pid=os.getpid(), seccomp=filters[False] is not None, num_huge_pages=num_huge))
    Forkserver(control, level, functools.partial(serve_jobs, level, filters)).serve()


def serve_jobs(
    level: SandboxLevel,
    filters: dict[bool, Callable[[], None] | None],
    spawn: Spawn,
    channel: socket.socket,
    folder: str,
) -> None:
    """In a judge: one job after the other, until the server closes the channel."""
    import torch

    from weir.kernel_eval.judge.judge import judge
    from weir.kernel_eval.judge.task_check import check_task

    on_gpu = spawn.limits.gpu is not None
    containment.contain_judge(level, spawn.limits, folder, filters[on_gpu])
    os.chdir(folder)
    if on_gpu:  # for all its life; it has not spoken to it yet
        os.environ.update(CUDA_VISIBLE_DEVICES=str(spawn.limits.gpu), CUDA_CACHE_DISABLE="1")
    while True:
        try:
            job, fds = receive(channel, Job)
        except ChannelClosed:
            return
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
