"""The steps of a sandbox, one at a time, each in a fork; other tests use whole servers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weir.kernel_eval.sandbox import containment, seccomp, syscalls
from weir.kernel_eval.sandbox.levels import SandboxLevel


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no file system may be mounted here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_candidate_that_fails_on_a_full_disk_is_not_to_blame(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, start_server: Any, read_example: Callable[[str], str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(small_disk))
    fill = small_disk / "fill"
    with start_server(sandbox="landlock") as server:
        assert server.evaluate(read_example("relu_candidate"))["correct"]
        with contextlib.suppress(OSError), fill.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        full = server.evaluate(read_example("relu_candidate"))
        fill.unlink()
        after = server.evaluate(read_example("relu_candidate"))
    assert (full["fault"], full["raw_reward"], after["correct"]) == ("server_error", None, True), (full, after)


def in_a_fork(check: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def refused(action: Callable[[], Any]) -> bool:
    try:
        action()
    except PermissionError:
        return True
    return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_becomes_a_user_of_its_own_where_that_user_can_read_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containment, "readable_folders", lambda: ("/usr/lib",))
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o711)
    own, secret = tmp_path / "own", tmp_path / "secret"
    own.mkdir(mode=0o700)
    secret.write_text("s")
    secret.chmod(0o600)
    parent = os.getpid()

    def check() -> bool:
        kept = containment.become_own_user(str(own))
        (own / "file").write_text("x")
        no_way_back = refused(lambda: os.setuid(0)) and refused(lambda: os.kill(parent, signal.SIGTERM))
        return kept == 0 and os.getuid() >= 200_000 and refused(secret.read_text) and no_way_back

    assert in_a_fork(check)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_where_that_user_could_not_read_python_it_may_read_and_still_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, own = tmp_path / "hidden", tmp_path / "own"
    (hidden / "python").mkdir(parents=True)
    own.mkdir()
    module = hidden / "python" / "module.py"
    module.write_text("x = 1")
    hidden.chmod(0o700)
    monkeypatch.setattr(containment, "readable_folders", lambda: (str(hidden / "python"),))

    def check() -> bool:
        kept = containment.become_own_user(str(own))
        syscalls.keep_capabilities(kept)
        reads = kept == syscalls.CAP_DAC_READ_SEARCH and module.read_text() == "x = 1"
        refuses = refused(lambda: module.write_text("x = 2")) and refused(lambda: (tmp_path / "new").write_text(""))
        return reads and refuses and refused(lambda: os.setuid(0))

    assert in_a_fork(check)


def test_a_process_without_capabilities_reads_no_file_of_others(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has capabilities to lose")
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o000)

    def check() -> bool:
        syscalls.keep_capabilities(0)
        return refused(secret.read_text)

    assert in_a_fork(check)


def test_a_candidate_does_not_choose_processors_and_priorities() -> None:
    load = seccomp.build()
    if load is None:
        pytest.skip("libseccomp is not installed")
    calls: list[Callable[[], Any]] = [
        lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
        lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
        lambda: os.sched_setparam(0, os.sched_param(0)),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
        lambda: os.nice(1),
    ]

    def check() -> bool:
        syscalls.forbid_new_privileges()
        load()
        return all(map(refused, calls)) and bool(os.sched_getaffinity(0))

    assert in_a_fork(check)


def reach(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError:
        return False
    return True


def test_a_zygote_that_left_the_network_reaches_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        assert in_a_fork(lambda: reach(address))

        def check() -> bool:
            return not containment.isolate_zygote(SandboxLevel.LANDLOCK) or not reach(address)

        assert in_a_fork(check)


def test_somebody_who_is_not_root_can_leave_the_network_too() -> None:
    python = "/usr/bin/python3"
    if os.geteuid() != 0 or not Path(python).exists():
        pytest.skip("needs root, to become somebody else, and a Python that others can run")
    code = (
        "import os, sys\n"
        f"exec(compile({Path(syscalls.__file__).read_text()!r}, 'syscalls.py', 'exec'))\n"
        "before = os.readlink('/proc/self/ns/net')\n"
        "try:\n    leave_network()\nexcept PermissionError:\n    sys.exit(3)\n"
        "sys.exit(0 if os.readlink('/proc/self/ns/net') != before and os.getuid() == 65534 else 1)\n"
    )
    ended = subprocess.run([python, "-c", code], user=65534, group=65534, extra_groups=[], cwd="/")
    if ended.returncode == 3:
        pytest.skip("this machine does not allow user namespaces")
    assert ended.returncode == 0


def test_health_says_whether_workers_have_a_network_of_their_own(
    contained_server: Any, read_example: Callable[[str], str]
) -> None:
    contained_server.evaluate(read_example("relu_candidate"))
    assert contained_server.http.get("/health").json()["own_network"]
