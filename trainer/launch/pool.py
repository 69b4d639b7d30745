"""Ranks that stay: processes under torchrun that take one request after the other, until their owner closes them.

Invariant: every rank runs every request, in order. Rank 0 gets them through a socket in a work folder that only this
user can open, sends them to the others as it got them, and returns its answer. A rank that dies ends all of them, also
those of other machines, and the owner's request fails; so does a rank of this machine that stands still
(`heartbeats.py`). The ranks end when their owner does, even if it is killed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, Protocol

from weir.trainer.errors import NotFinite, TrainerError
from weir.trainer.launch import heartbeats
from weir.trainer.launch.agent import agent_command
from weir.trainer.launch.nodes import address, join_all
from weir.trainer.launch.ray_nodes import met_by_ray, nodes_command
from weir.trainer.launch.work_folder import WorkFolder
from weir.trainer.settings.launch import LaunchConfig

FOLDER_PREFIX = "weir-ranks-"
SOCKET = "requests"
STDERR = "stderr.txt"
TAIL_CHARS = 2000
SUMMARY = "] failed (exitcode"  # what torchrun writes from here on hides what the rank wrote
LEAVE = b""  # in place of a request
LEAVE_S = 10.0  # for ranks that have nothing to do


class Request(Protocol):
    """What ranks are asked to do. It is pickled; so is rank 0's answer."""

    def run(self, ranks: Any, held: dict[str, Any]) -> Any:
        """Do it on one rank; `held` is what earlier requests left there. Raises `NotFinite` on all ranks or on none.

        `ranks` is a `learner.distributed.Ranks`.
        """
        ...


class RankPool:
    """So many ranks, on this machine or several. `resumed` tells the user what follows where one dies."""

    def __init__(self, processes: int, device: str, launch: LaunchConfig, *, resumed: str) -> None:
        """Start them. Raises `TrainerError` where they do not start."""
        self.processes = processes
        self.resumed = resumed
        self._work = WorkFolder(FOLDER_PREFIX)
        folder = self._work.path
        self._started = _Started(stderr=folder / STDERR)
        self._end = weakref.finalize(self, self._started.end, self._work)
        listener = listening(folder)
        if launch.by == "ray" and launch.rendezvous is None:
            launch = met_by_ray(launch)
        self.address = address(launch)[0] if launch.nodes > 1 else None  # at which other machines reach this one
        command = agent_command(processes=processes, launch=launch, node=0, folder=str(folder), device=device)
        with (folder / STDERR).open("ab") as stderr:
            self._join(launch, _starts(launch, processes, device), stderr)
            self._started.agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        threading.Thread(target=_end_with_any, args=(self._started.agent.pid, self._started.nodes), daemon=True).start()
        with listener, ends([self._started.agent]) as agent:
            if listener not in wait([listener, *agent]):
                raise self._died()
            self._started.connection = Connection(listener.accept()[0].detach())

    def _join(self, launch: LaunchConfig, commands: Sequence[Sequence[str]], stderr: IO[bytes]) -> None:
        """Start the other machines where commands do that, and wait for them. Raises `TrainerError`."""
        if launch.nodes == 1:
            return
        for command in commands:
            self._started.others.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, start_new_session=True
                )
            )
        with ends(self._started.others) as descriptors:
            try:
                self._started.nodes += join_all(launch, descriptors)
            except TrainerError as error:
                told = self._started.stderr.read_text(errors="replace")[-TAIL_CHARS:]
                self.close()
                raise TrainerError(f"{error}\n{told}".rstrip()) from error

    @property
    def is_alive(self) -> bool:
        """Whether the ranks wait for a request."""
        connection = self._started.connection
        return self._end.alive and connection is not None and not connection.poll() and self._started.runs

    def call(self, request: Request) -> Any:
        """Have all ranks run a request; rank 0's answer. Raises `NotFinite`, and `TrainerError` when a rank dies."""
        connection = self._started.connection
        assert connection is not None
        beats = heartbeats.Heartbeats(self._work.path)
        try:
            self._started.is_idle = False
            connection.send_bytes(pickle.dumps(request))
            while not connection.poll(heartbeats.LOOK_S):
                if frozen := beats.frozen():
                    raise self._stands_still(frozen)
            answer = connection.recv()
            self._started.is_idle = True
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(answer, NotFinite):
            raise answer
        return answer

    def kill(self) -> None:
        """End the ranks in the middle of a request, which raises `TrainerError`; another thread waits for it."""
        assert self._started.agent is not None
        self._started.agent.kill()

    def close(self) -> None:
        """End the ranks; garbage collection does the same. May be called twice."""
        self._end()

    def _stands_still(self, frozen: Sequence[str]) -> TrainerError:
        """The error to raise where ranks neither work nor end, once all have ended."""
        self.kill()
        self.close()
        return TrainerError(
            f"training on {self.processes} processes was ended, since {' and '.join(frozen)} stood still and did not "
            f"even say that it lives; {self.resumed}"
        )

    def _died(self) -> TrainerError:
        """The error to raise once a rank has ended, after the others have."""
        started = self._started
        assert started.agent is not None
        status = started.agent.wait()
        told = started.stderr.read_text(errors="replace")
        tail = told.partition(SUMMARY)[0][-TAIL_CHARS:]
        self.close()
        return TrainerError(
            f"training on {self.processes} processes ended with status {status}; {self.resumed}. The end of its "
            f"stderr:\n{tail}"
        )


def _starts(launch: LaunchConfig, processes: int, device: str) -> list[list[str]]:
    """The commands that start other machines; none where they come by themselves."""
    if launch.by == "ray":
        return [nodes_command(launch, processes=processes, device=device)]
    if launch.start is None:
        return []
    return [["/bin/sh", "-c", launch.start.replace("{node}", str(node))] for node in range(1, launch.nodes)]


@dataclass(slots=True)
class _Started:
    """What has to end with the pool."""

    stderr: Path
    agent: subprocess.Popen[bytes] | None = None
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)  # the commands that start other machines
    connection: Connection[Any, Any] | None = None
    nodes: list[socket.socket] = field(default_factory=list)  # connections of other machines
    is_idle: bool = True

    @property
    def runs(self) -> bool:
        return self.agent is not None and self.agent.poll() is None

    def end(self, work: WorkFolder) -> None:
        if self.agent is not None:
            if self.connection is not None and self.is_idle:
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    self.connection.send_bytes(LEAVE)
                    self.agent.wait(LEAVE_S)
            self.agent.kill()
            self.agent.wait()
        if self.connection is not None:
            self.connection.close()
        for node in self.nodes:
            node.close()
        for other in self.others:
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(LEAVE_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(other.pid, signal.SIGKILL)
            other.wait()
        work.close()


@contextlib.contextmanager
def ends(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """A descriptor for each process, readable once it has ended."""
    found = [os.pidfd_open(process.pid) for process in processes]
    try:
        yield found
    finally:
        for descriptor in found:
            os.close(descriptor)


def _end_with_any(agent_pid: int, nodes: Sequence[socket.socket]) -> None:
    """End the agent, and with it the ranks here, as soon as a machine's connection ends; return once it has ended."""
    descriptor = os.pidfd_open(agent_pid)
    try:
        if descriptor not in wait([descriptor, *nodes]):
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    except OSError:  # the pool was closed
        pass
    finally:
        os.close(descriptor)


def listening(folder: Path) -> socket.socket:
    """A socket in a folder, by a path that is short enough for one."""
    listener = socket.socket(socket.AF_UNIX)
    with _short(folder) as short:
        listener.bind(f"{short}/{SOCKET}")
    listener.listen(1)
    return listener


def connected(folder: Path) -> Connection[Any, Any]:
    """Rank 0's connection to the owner of a work folder. Raises OSError where it has ended."""
    ours = socket.socket(socket.AF_UNIX)
    with _short(folder) as short:
        ours.connect(f"{short}/{SOCKET}")
    return Connection(ours.detach())


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
