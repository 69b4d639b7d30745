"""The forkserver: a process that forks children from itself on request, and the messages of its protocol.

Every zygote runs one. A client first passes one end of a socket pair, the lease, to the forkserver's control socket,
and then sends a `Spawn` on the other end; when the child ends, it receives an `Exited`. `Leases` are those of one
evaluation. Invariant: a child lives no longer than its lease is open, so that a judge or a server that dies takes its
children with it. The loop has one thread and uses no signals: children are watched through pidfds. It never runs a
candidate itself.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from weir.kernel_eval.ipc.framing import ChannelClosed, FrameError, receive, send
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.sandbox import containment, syscalls
from weir.kernel_eval.sandbox.levels import SandboxLevel

# roles of children
ASSEMBLER, BUILDER, COLLECTOR, COMPILER, RECORDER = "assembler", "builder", "collector", "compiler", "recorder"
RECOMPILER, PLAYER = "recompiler", "player"
_GRACE_S = 0.5  # at most, between an `End` and the kill


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Forkserver to server, once: imports are done. `pid` is the forkserver's, in its own PID namespace."""

    pid: int
    seccomp: bool
    own_network: bool = True  # whether its workers have a network namespace of their own
    num_huge_pages: int = 0  # of its memory; with few of them, forks are slow


class Lease(msgspec.Struct, frozen=True):
    """Server to forkserver, with the descriptor of the socket through which a `Spawn` will come."""


class Spawn(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Lease holder to forkserver: fork a child. Descriptors: its channel, and the file for its stdout and stderr."""

    limits: Limits
    role: str = ""  # for forkservers with several kinds of children


class End(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Lease holder to forkserver: end the child; it has `grace_s` to end by itself."""

    grace_s: float = 0.0


class AskRunDelay(msgspec.Struct, frozen=True, tag=True):
    """Lease holder to forkserver: how long has the child waited for a processor?"""


class RunDelay(msgspec.Struct, frozen=True, tag=True):
    """Forkserver to lease holder: the seconds in which the child could run and others did; 0 if it is gone."""

    seconds: float


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Forkserver to lease holder: the child and all of its descendants are gone."""

    exit_code: int | None  # None where a signal ended it
    signal: int | None
    killed_by_us: bool
    cpu_s: float
    max_rss_bytes: int
    num_threads: int = 1  # when its `End` arrived
    files_left: int = 0  # files that it left outside its own folder
    own_rss_bytes: int = 0  # lower bound of the RSS gained since the fork
    own_pids: bool = False  # it had its own PID namespace, in which no process could signal it, not even itself


class _Child:
    """A lease, and the process that was forked under it."""

    def __init__(self, lease: socket.socket) -> None:
        self.lease = lease
        self.pid: int | None = None
        self.pidfd = -1
        self.tmp = ""
        self.kill_at: float | None = None
        self.killed_by_us = False
        self.num_threads = 1


class Forkserver:
    """The loop of a zygote. `run_child(spawn, channel, tmp)` runs in each child, and need not return."""

    def __init__(
        self, control: socket.socket, level: SandboxLevel, run_child: Callable[[Spawn, socket.socket, str], None]
    ) -> None:
        self._control = control
        self._level = level
        self._run_child = run_child
        self._worker_tmp = containment.worker_tmp()
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._children: set[_Child] = set()
        self._rss_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def serve(self) -> None:
        """Fork and watch children until the server closes its end of the control socket."""
        syscalls.become_subreaper()
        while True:
            for key, _ in self._selector.select(self._next_timeout_s()):
                if key.fileobj is self._control:
                    try:
                        self._take_lease()
                    except ChannelClosed:
                        return
                elif key.fd == key.data.pidfd:
                    self._reap(key.data)
                elif key.data in self._children:
                    self._handle_message(key.data)
            self._kill_overdue()

    def _next_timeout_s(self) -> float | None:
        due = [child.kill_at for child in self._children if child.kill_at is not None and not child.killed_by_us]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.kill_at is not None and child.kill_at <= now and not child.killed_by_us:
                child.killed_by_us = True
                if child.pid is not None:
                    _kill_group(child.pid)

    def _take_lease(self) -> None:
        _, fds = receive(self._control, Lease)
        child = _Child(socket.socket(fileno=fds[0]))
        self._children.add(child)
        self._selector.register(child.lease, selectors.EVENT_READ, child)

    def _handle_message(self, child: _Child) -> None:
        try:
            message: Spawn | End | AskRunDelay
            message, fds = receive(child.lease, Spawn | End | AskRunDelay)  # type: ignore[arg-type]
        except (ChannelClosed, FrameError):
            self._selector.unregister(child.lease)
            child.kill_at = time.monotonic()
            if child.pid is None:
                self._forget(child)
            return
        if isinstance(message, End):
            child.num_threads = 1 if child.pid is None else _num_threads(child.pid)
            child.kill_at = time.monotonic() + min(message.grace_s, _GRACE_S)
        elif isinstance(message, AskRunDelay):
            with contextlib.suppress(ChannelClosed, OSError):  # the lease holder may be gone
                send(child.lease, RunDelay(0.0 if child.pid is None else _run_delay_s(child.pid)))
        elif isinstance(message, Spawn):
            self._fork(child, message, fds)

    def _fork(self, child: _Child, spawn: Spawn, fds: list[int]) -> None:
        if self._level is not SandboxLevel.BUBBLEWRAP and not self._make_folder(child):
            self._selector.unregister(child.lease)
            self._forget(child)  # closes the lease, which tells its holder that there is no child
            for fd in fds:
                os.close(fd)
            return
        with containment.pid_namespace_for_children(self._level):
            pid = syscalls.fork()
            if pid == 0:
                self._become_child(spawn, fds, child.tmp or self._worker_tmp)
        child.pid, child.pidfd = pid, os.pidfd_open(pid)
        child.kill_at, child.killed_by_us, child.num_threads = None, False, 1
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)
        for fd in fds:
            os.close(fd)

    def _make_folder(self, child: _Child) -> bool:
        """Make the child's temporary folder. Returns False if the disk has no space for it."""
        try:
            child.tmp = tempfile.mkdtemp(prefix="weir-kernel-eval-")
        except OSError:
            return False
        return True

    def _become_child(self, spawn: Spawn, fds: list[int], tmp: str) -> None:
        status = 1
        try:
            os.setsid()
            syscalls.die_with_parent()
            channel_fd, output_fd = fds
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output_fd, 1)
            os.dup2(output_fd, 2)
            os.dup2(channel_fd, 3)
            os.closerange(4, 1 << 16)
            self._run_child(spawn, socket.socket(fileno=3), tmp)
            status = 0
        finally:
            os._exit(status)

    def _reap(self, child: _Child) -> None:
        assert child.pid is not None
        _kill_group(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        if self._level is not SandboxLevel.BUBBLEWRAP:
            self._end_orphans(child.pid)
            shutil.rmtree(child.tmp, ignore_errors=True)
        files_left = containment.remove_files_of(child.pid) if self._level is SandboxLevel.RLIMITS else 0
        code = os.waitstatus_to_exitcode(status)
        exited = Exited(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            killed_by_us=child.killed_by_us,
            cpu_s=usage.ru_utime + usage.ru_stime,
            max_rss_bytes=usage.ru_maxrss * 1024,
            num_threads=child.num_threads,
            files_left=files_left,
            own_rss_bytes=max(0, usage.ru_maxrss * 1024 - self._rss_bytes),
            own_pids=self._level is SandboxLevel.BUBBLEWRAP,
        )
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        child.pid, child.pidfd = None, -1
        with contextlib.suppress(ChannelClosed, OSError):  # the lease holder may be gone
            send(child.lease, exited)
        if child.lease not in self._selector.get_map():
            self._forget(child)  # else it is kept until its holder closes the lease: an `End` may be under way

    def _end_orphans(self, reaped: int) -> None:
        """End the descendants that a worker left behind: they have become children of this process."""
        ours = {child.pid for child in self._children} - {reaped}
        listing = Path(f"/proc/self/task/{os.getpid()}/children")
        while strangers := [pid for pid in map(int, listing.read_text().split()) if pid not in ours]:
            for pid in strangers:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _forget(self, child: _Child) -> None:
        self._children.discard(child)
        child.lease.close()


def _num_threads(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1 if fields[0] == "Z" else int(fields[17])


def _run_delay_s(pid: int) -> float:
    """Seconds that a process's first thread was runnable and did not run; Linux, Documentation/scheduler/sched-stats.

    0 where the kernel does not count them.
    """
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


class Leases(NamedTuple):
    """The leases of one evaluation; they travel with its `Job`, in this order. Each allows one child at a time."""

    worker: socket.socket  # of a player; of native code on a GPU, of its worker before
    recorder: socket.socket
    second_recorder: socket.socket
    compiler: socket.socket
    program: socket.socket

    def close(self) -> None:
        """Close the leases, which ends the children that were forked under them."""
        for lease in self:
            lease.close()
