"""`python -m weir.kernel_eval.zygotes.judge FD LEVEL`: forks judges, each of which takes one job after the other.

Judges are contained as workers are (no network, no processes, a small tmpfs, bounded memory), because tasks bring code
too. They may hold more memory and more files, and use the processor until their evaluation's time is over. Invariant:
all jobs of one judge belong to one task, so that a task's code can affect no other task. On a GPU, where creating a
context takes seconds, a judge takes the jobs of all tasks, and its memory is not limited.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import traceback

from weir.kernel_eval.ipc.forkserver import Exited, Leases, RunDelay, Spawn
from weir.kernel_eval.ipc.framing import ChannelClosed, learn, receive, send
from weir.kernel_eval.ipc.job import Job, Judgement
from weir.kernel_eval.ipc.messages import FromWorker, Opened
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.sandbox import containment, seccomp
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.zygotes.zygote import Children, SeccompFilter, start


def prepare(level: SandboxLevel) -> Children:
    """Import everything that judges need."""
    import torch

    from weir.kernel_eval.judge import (
        judge,  # noqa: F401 - imported once, for every judge
        task_check,  # noqa: F401
        warm_up,
    )

    torch.set_num_threads(1)
    warm_up.return_freed_memory()
    warm_up.warm_up()  # also reads /proc/cpuinfo, which a judge cannot
    learn(Job, FromWorker, Exited, RunDelay | Exited, Opened)
    allowed = ("memfd_create", "socketpair")  # for arenas and channels
    filters = {on_gpu: seccomp.build(allowed, on_gpu=on_gpu) for on_gpu in (False, True)}
    return Children(functools.partial(serve_jobs, level, filters), filters[False] is not None)


def serve_jobs(
    level: SandboxLevel, filters: dict[bool, SeccompFilter], spawn: Spawn, channel: socket.socket, folder: str
) -> None:
    """In a judge: judge one job after the other, until the server closes the channel or the GPU fails."""
    on_gpu = spawn.limits.gpu is not None
    containment.contain_judge(level, spawn.limits, folder, filters[on_gpu])
    os.chdir(folder)
    if on_gpu:  # before CUDA is initialised; a judge keeps its GPU for life
        os.environ.update(CUDA_VISIBLE_DEVICES=str(spawn.limits.gpu), CUDA_CACHE_DISABLE="1")
    while True:
        try:
            job, fds = receive(channel, Job)
        except ChannelClosed:
            return
        judgement = _judge(job, fds)
        send(channel, judgement)
        if judgement.fault is Fault.GPU_UNHEALTHY:
            return  # the CUDA context of this process is unusable


def _judge(job: Job, fds: list[int]) -> Judgement:
    """Judge one job. Raises nothing: errors of the judge become judgements too."""
    import torch

    from weir.kernel_eval.judge.judge import judge
    from weir.kernel_eval.judge.task_check import check_task

    try:
        leases = Leases(*(socket.socket(fileno=fd) for fd in fds))
        with contextlib.closing(leases):
            return check_task(job) if job.checks_task else judge(job, leases)
    except torch.AcceleratorError as error:
        return Judgement(stage=Stage.NOTHING, fault=Fault.GPU_UNHEALTHY, message=f"the GPU failed: {error}")
    except Exception as error:  # the process's edge: reported with its traceback
        return Judgement(
            stage=Stage.NOTHING,
            fault=Fault.SERVER_ERROR,
            message=f"the judge failed: {type(error).__name__}: {error}",
            details={"traceback": traceback.format_exc()},
        )


if __name__ == "__main__":
    start(prepare, isolated=False)
