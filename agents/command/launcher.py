"""The first process of a contained command: starts it, relays its calls, and ends what is left of it.

`python -m weir.agents.command.launcher SPEC`, where SPEC is a JSON file that `contained.py` writes. It imports the
standard library and the sandbox only. It writes `{"exit_code": n}` or `{"error": "..."}` to the descriptor `status_fd`,
which the command does not inherit. Below `bubblewrap`, orphans become its children, and it ends all of them before it
ends; SIGTERM makes it do so at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from weir.kernel_eval.sandbox import landlock, seccomp, syscalls

_ALLOWED = (  # system calls that a command needs and a worker of the judge does not
    *("fork", "vfork", "execve", "execveat", "kill", "tkill", "pidfd_send_signal", "pidfd_open"),
    *("socket", "socketpair", "connect", "bind", "listen", "accept", "accept4"),
    *("rt_sigqueueinfo", "rt_tgsigqueueinfo", "setsid", "setpgid", "prlimit64", "setrlimit", "memfd_create"),
)
_CHUNK = 1 << 16
NOT_STARTED = 127  # exit code of a command that could not be started, as a shell has it


def main(spec_path: str) -> int:
    """Run the command of a spec; returns its exit code, 128 + the signal's number where one ended it."""
    spec = json.loads(Path(spec_path).read_text())
    status = spec["status_fd"]
    os.set_inheritable(status, False)
    try:
        exit_code = _run(spec)
    except OSError as error:
        os.write(status, json.dumps({"error": f"the command could not be contained: {error}"}).encode())
        return NOT_STARTED
    os.write(status, json.dumps({"exit_code": exit_code}).encode())
    return exit_code


def _run(spec: dict[str, Any]) -> int:
    syscalls.die_with_parent()
    syscalls.become_subreaper()
    if spec["uid"] is not None:
        syscalls.become_user(spec["uid"], spec["kept_capabilities"])
        syscalls.die_with_parent()
    syscalls.forbid_inspection()
    listener = _listener(spec["relay_port"]) if spec["relay_socket"] else None
    signal.signal(signal.SIGTERM, _end_at_once)
    pid = os.fork()
    if pid == 0:
        _become_command(spec)
    if listener is not None:
        threading.Thread(target=_relay, args=(listener, spec["relay_socket"]), daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if spec["level"] != "bubblewrap":
        _end_descendants()
    return code if code >= 0 else 128 - code


def _become_command(spec: dict[str, Any]) -> None:
    try:
        _contain(spec)
        os.chdir(spec["work"])
        stdin = os.open(spec["stdin"] or "/dev/null", os.O_RDONLY)
        os.dup2(stdin, 0)
        os.execvpe(spec["argv"][0], spec["argv"], os.environ)
    except OSError as error:
        print(f"weir: {spec['argv'][0]} could not be started: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(NOT_STARTED)


def _contain(spec: dict[str, Any]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, spec["file_bytes"])
    _limit(resource.RLIMIT_DATA, spec["memory_bytes"])
    if spec["uid"] is not None or spec["level"] == "bubblewrap":  # elsewhere the user's other processes count too
        _limit(resource.RLIMIT_NPROC, spec["processes"])
    if spec["level"] == "landlock":
        landlock.restrict(tuple(spec["readable"]), tuple(spec["writable"]), tuple(spec["connect_ports"]))
    syscalls.forbid_new_privileges()
    syscalls.keep_capabilities(spec["kept_capabilities"])
    load = seccomp.build(_ALLOWED, may_fork=True)
    if load is not None:
        load()


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bounded, bounded))


def _listener(port: int) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    listener.set_inheritable(False)
    return listener


def _relay(listener: socket.socket, path: str) -> None:
    """Connect whoever calls to the relay outside, which knows the one address that may be reached."""
    while True:
        inside, _ = listener.accept()
        outside = socket.socket(socket.AF_UNIX)
        try:
            outside.connect(path)
        except OSError:
            inside.close()
            continue
        for source, sink in ((inside, outside), (outside, inside)):
            threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _end_at_once(*_: object) -> None:
    _end_descendants()
    os._exit(128 + signal.SIGTERM)


def _end_descendants() -> None:
    """SIGKILL whatever the command left, until nothing is left; orphans are children of this process."""
    while _descendants():
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _descendants() -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
