"""The processes behind a server: forkservers of players or workers, compilers, programs and judges, and the judges.

Runs in the server's event loop and never blocks it. Invariants: at most `num_slots` jobs run at a time; every job ends
with a judgement, however its processes died (`server_error` after one retry). An evaluation that the operating system
killed is retried too: others may have used up the memory, and a kernel that does so will do it again. When the server
dies, in any way, all of its processes die with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

import msgspec

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc.forkserver import Exited, Lease, Leases, Ready, Spawn
from weir.kernel_eval.ipc.framing import ChannelClosed, FrameError, read_frame, write_frame
from weir.kernel_eval.ipc.job import Job, Judgement
from weir.kernel_eval.machines.cleanup import make_folder
from weir.kernel_eval.machines.slots import Priority, Slots
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.sandbox import containment, ending
from weir.kernel_eval.sandbox.levels import SandboxLevel

_log = logging.getLogger(__name__)
_RESTART_PAUSE_S = 0.5
_ATTEMPTS = 2
_EXIT_S = 5.0  # for the report of a judge's end, after its channel was closed
_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL}
)  # not SIGBUS, which full memory causes


class ForkserverProcess:
    """One forkserver, restarted whenever it dies."""

    def __init__(self, module: str, level: SandboxLevel, *arguments: str, on_gpu: bool = False) -> None:
        self._on_gpu = on_gpu
        self._module = module
        self._arguments = arguments
        self._level = level
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # of the workers' own folders, without bubblewrap
        self._sending = asyncio.Lock()
        self._up = asyncio.Event()
        self.ready: Ready | None = None
        self.num_starts = 0

    async def run(self) -> None:
        """Keep it running until cancelled."""
        try:
            while True:
                started = time.monotonic()
                await self._run_once()
                _log.warning("%s ended after %.1f s and is restarted", self._module, time.monotonic() - started)
                await asyncio.sleep(_RESTART_PAUSE_S)
        finally:
            self._end()

    async def lease(self) -> socket.socket:
        """This end of a new lease, a blocking socket. Waits for a forkserver that is starting."""
        while True:
            await self._up.wait()
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    assert self._control is not None
                    async with self._sending:
                        await write_frame(self._control, Lease(), (theirs.fileno(),))
                    return ours
                except (ChannelClosed, OSError):
                    ours.close()
                    self._up.clear()

    @property
    def pid(self) -> int | None:
        """The pid of the started process, which is bubblewrap's if that is used; None between starts."""
        return None if self._process is None else self._process.pid

    @property
    def is_up(self) -> bool:
        """Whether it accepts leases now."""
        return self._up.is_set()

    def describe(self) -> dict[str, Any]:
        """Its entry in GET /health."""
        num_huge_pages = self.ready.num_huge_pages if self.ready else 0
        return {"pid": self.pid, "up": self.is_up, "starts": self.num_starts, "huge_pages": num_huge_pages}

    async def _run_once(self) -> None:
        control, theirs = socket.socketpair()
        with theirs:
            arguments = ("-m", self._module, str(theirs.fileno()), self._level.value, *self._arguments)
            own = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}  # bubblewrap may be anywhere
            if self._level is not SandboxLevel.BUBBLEWRAP:
                self._folder = make_folder()
                own["TMPDIR"] = self._folder.name
            # blocks for the milliseconds of an exec, only at starts: a child dies with the thread that started it
            self._process = subprocess.Popen(  # noqa: ASYNC220
                containment.command(self._level, arguments, on_gpu=self._on_gpu),
                env={**containment.environment(), **own},
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                pass_fds=(theirs.fileno(),),
                cwd="/",
            )
        self.num_starts += 1
        control.setblocking(False)
        self._control = control
        try:
            self.ready = await read_frame(control, Ready)
            self._up.set()
            await read_frame(control, Ready)  # no second message comes: this raises when the other end closes
        except (ChannelClosed, FrameError):
            pass
        finally:
            self._end()

    def _end(self) -> None:
        self._up.clear()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            if self._process.poll() is None:
                ending.end(self._process.pid)
            self._process.wait()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class JudgeSlot:
    """One judge process, and the one task that it judges."""

    def __init__(self, channel: socket.socket, lease: socket.socket, reference_src: str) -> None:
        self.channel = channel
        self.reference_src = reference_src
        self._lease = lease

    async def ended_by_task(self) -> str | None:
        """How a judge that is gone ended, if only its task's code can have caused that; else None."""
        try:
            async with asyncio.timeout(_EXIT_S):
                exited = await read_frame(self._lease, Exited)
        except (ChannelClosed, FrameError, OSError):  # one of which is TimeoutError
            return None
        if exited.signal in _CRASHES:
            return f"was ended by signal {exited.signal}"
        return None if exited.exit_code in (None, 1) else f"left with exit code {exited.exit_code}"

    def close(self) -> None:
        """End the judge, and with it the worker that it holds."""
        self.channel.close()
        self._lease.close()


class Pool:
    """Judges jobs, `num_slots` at a time: evaluations in order of arrival, then checks of tasks."""

    def __init__(self, config: KernelEvalConfig, level: SandboxLevel, gpu_target: str | None = None) -> None:
        self._config = config
        on_gpu = gpu_target is not None
        self.zygote = ForkserverProcess("weir.kernel_eval.zygotes.player", level)
        if gpu_target is not None:
            self.zygote = ForkserverProcess("weir.kernel_eval.zygotes.gpu_worker", level, gpu_target, on_gpu=True)
        self.compilers = ForkserverProcess("weir.kernel_eval.zygotes.compiler", level, gpu_target or config.target)
        self.programs = ForkserverProcess("weir.kernel_eval.zygotes.program", level)
        self.judges = ForkserverProcess("weir.kernel_eval.zygotes.judge", level, on_gpu=on_gpu)
        self._slots = Slots(config.num_slots)
        self._idle: list[tuple[str | None, JudgeSlot]] = []  # GPU (None without one) and judge
        self._tasks: list[asyncio.Task[None]] = []
        self.waiting = 0
        self.running = 0

    def start(self) -> None:
        """Start the forkservers; evaluations wait until they are ready."""
        self._tasks = [asyncio.create_task(server.run()) for server in self.forkservers]

    @property
    def forkservers(self) -> tuple[ForkserverProcess, ...]:
        """The forkservers of players (on a GPU: of workers), of recorders and builders, of programs, and of judges."""
        return self.zygote, self.compilers, self.programs, self.judges

    async def close(self) -> None:
        """End every process. May be called twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.end_idle_judges()

    async def evaluate(self, job: Job) -> Judgement:
        """Wait for a slot, then judge. Retries once if a process was lost, or killed by the operating system."""
        self.waiting += 1
        try:
            await self._slots.acquire(Priority.TASK_CHECK if job.checks_task else Priority.EVALUATION)
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            for _ in range(_ATTEMPTS):
                judgement = await self._attempt(job)
                if not _must_be_retried(judgement):
                    break
            return judgement
        finally:
            self.running -= 1
            self._slots.release()

    async def _attempt(self, job: Job) -> Judgement:
        slot = await self._take_slot(job.limits.gpu, job.reference_src)
        try:
            leases = await self._take_leases()
            try:
                await write_frame(slot.channel, job, tuple(lease.fileno() for lease in leases))
            finally:
                leases.close()
            async with asyncio.timeout(self._config.evaluation_timeout_s):
                judgement = await read_frame(slot.channel, Judgement)
        except TimeoutError:
            slot.close()
            return _lost(f"the evaluation took longer than {self._config.evaluation_timeout_s:g} s")
        except (ChannelClosed, FrameError, OSError) as error:
            end = await slot.ended_by_task() if job.limits.gpu is None else None
            slot.close()
            if end is not None:
                message = f"the process in which the task's own code runs {end}"
                return Judgement(stage=Stage.NOTHING, fault=Fault.INVALID_REFERENCE, message=message)
            self.end_idle_judges()  # they may have been lost in the same way
            return _lost(f"the judge is gone ({type(error).__name__})")
        except BaseException:
            slot.close()  # cancelled during a job: its judge cannot be reused
            raise
        if judgement.fault is Fault.GPU_UNHEALTHY:
            slot.close()
        else:
            self._idle.append((job.limits.gpu, slot))
        return judgement

    async def _take_leases(self) -> Leases:
        recorder, second, builder = [await self.compilers.lease() for _ in range(3)]
        return Leases(await self.zygote.lease(), recorder, second, builder, await self.programs.lease())

    def end_idle_judges(self) -> int:
        """End all idle judges, which frees their memory. Returns their number."""
        ended = len(self._idle)
        while self._idle:
            self._idle.pop()[1].close()
        return ended

    def end_judges_of(self, gpu: str) -> None:
        """End the idle judges on a GPU, which could not be reset otherwise."""
        for idle in [idle for idle in self._idle if idle[0] == gpu]:
            self._idle.remove(idle)
            idle[1].close()

    async def _take_slot(self, gpu: str | None, reference_src: str) -> JudgeSlot:
        """A judge of this task on this GPU. Judges are not reused for other tasks, whose code may have changed them."""
        of_gpu = [idle for idle in self._idle if idle[0] == gpu]
        same = next((idle for idle in of_gpu if idle[1].reference_src == reference_src), None)
        if same is not None:
            self._idle.remove(same)
            return same[1]
        if of_gpu:
            self._idle.remove(of_gpu[0])
            of_gpu[0][1].close()
        lease = await self.judges.lease()
        channel, theirs = socket.socketpair()
        lease.setblocking(False)
        channel.setblocking(False)
        with theirs, contextlib.suppress(ChannelClosed):
            spawn = Spawn(limits=msgspec.structs.replace(self._config.limits, gpu=gpu))
            await write_frame(lease, spawn, (theirs.fileno(), sys.stderr.fileno()))
        return JudgeSlot(channel, lease, reference_src)


def _must_be_retried(judgement: Judgement) -> bool:
    return judgement.fault is Fault.SERVER_ERROR or judgement.details.get("signal") == signal.Signals.SIGKILL.name


def _lost(message: str) -> Judgement:
    return Judgement(stage=Stage.NOTHING, fault=Fault.SERVER_ERROR, message=message)
