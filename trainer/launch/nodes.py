"""How machines that train together find and lose each other: a connection of every further one to the first.

Invariant: an attempt's agents start when all machines have joined it, and only those that joined this attempt. The
connection of a machine lives as long as its part of the attempt: where one ends, all machines end theirs. A machine
that vanishes without a word is missed after half a minute.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait

from weir.store.parent_death import end_with_parent
from weir.trainer.errors import TrainerError
from weir.trainer.settings.launch import LaunchConfig

GO = b"go\n"
POLL_S = 0.5


def join_all(launch: LaunchConfig, stops: Sequence[int]) -> list[socket.socket]:
    """Wait on the first machine until all others have come, and let them start; their connections.

    Raises `TrainerError` where some do not come within the limit, or where a descriptor of `stops` becomes readable.
    """
    host, port = address(launch)
    joined: dict[int, socket.socket] = {}
    end = time.monotonic() + launch.timeout_s
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise TrainerError(
            f"trainer.launch.rendezvous = {launch.rendezvous} cannot be listened at ({error}); name an address of this "
            "machine, and a port that is free, as the next one is"
        ) from error
    with listener:
        while len(joined) < launch.nodes - 1:
            ready = wait([listener, *joined.values(), *stops], max(end - time.monotonic(), 0))
            lost = [node for node, connection in joined.items() if connection in ready]
            for node in lost:
                joined.pop(node).close()
            if listener in ready:
                _accept(listener, joined)
            elif not lost:
                missing = ", ".join(str(node) for node in range(1, launch.nodes) if node not in joined)
                for connection in joined.values():
                    connection.close()
                raise TrainerError(
                    f"machine {missing} has not joined at {launch.rendezvous}; start `weir ranks --node K` there, or "
                    "see that trainer.launch.start can; the round stays open and the next start resumes it"
                )
    for connection in joined.values():
        connection.sendall(GO)
    return list(joined.values())


def address(launch: LaunchConfig) -> tuple[str, int]:
    """Host and port of the rendezvous; torch's own store is at the next port."""
    host, _, port = str(launch.rendezvous).rpartition(":")
    return host.strip("[]"), int(port)


def _accept(listener: socket.socket, joined: dict[int, socket.socket]) -> None:
    connection = listener.accept()[0]
    connection.settimeout(5.0)
    with contextlib.suppress(OSError, ValueError):
        node = int(connection.recv(16).decode())
        connection.settimeout(None)
        _keep_alive(connection)
        joined[node] = connection


def run_once(command: Sequence[str], node: int, launch: LaunchConfig, say: Callable[[str], None]) -> int:
    """Join an attempt of the first machine, and run the command until it or the attempt ends; the command's status."""
    connection = _joined(node, launch)
    if connection is None:
        return 1
    say("joins")
    ours = os.getpid()
    with connection, subprocess.Popen(command, preexec_fn=lambda: end_with_parent(parent_pid=ours)) as agent:
        descriptor = os.pidfd_open(agent.pid)
        try:
            ended = wait([descriptor, connection])
            if descriptor not in ended:  # the first machine has ended the attempt: ranks have left, or never will
                with contextlib.suppress(subprocess.TimeoutExpired):
                    agent.wait(POLL_S)
                agent.kill()
        finally:
            os.close(descriptor)
        return agent.wait()


def _joined(node: int, launch: LaunchConfig) -> socket.socket | None:
    """A connection to an attempt for which all machines have come; None where it has ended before."""
    while True:
        try:
            connection = socket.create_connection(address(launch), timeout=5.0)
            break
        except OSError:
            time.sleep(POLL_S)
    connection.settimeout(None)
    _keep_alive(connection)
    with contextlib.suppress(OSError):
        connection.sendall(f"{node}\n".encode())
        if connection.recv(len(GO)) == GO:
            return connection
    connection.close()
    return None


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
