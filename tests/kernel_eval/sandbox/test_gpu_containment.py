"""The additional rights of a worker on a GPU, which the GPU's driver needs. No test needs a GPU."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.sandbox import containment, seccomp
from weir.kernel_eval.sandbox.levels import SandboxLevel

LIMITS = msgspec.structs.replace(KernelEvalConfig().limits, gpu="GPU-0a")


def refused(action: Callable[[], Any]) -> bool:
    try:
        action()
    except (PermissionError, ValueError):  # the latter is what setrlimit makes of it
        return True
    return False


def in_a_fork(check: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.skipif(seccomp.build() is None, reason="needs libseccomp")
def test_the_filter_of_a_gpu_lets_its_driver_work_and_nothing_else() -> None:
    load, parent = seccomp.build(on_gpu=True), os.getpid()
    assert load is not None

    def check() -> bool:
        load()
        socket.socket(socket.AF_UNIX).close()
        os.close(os.memfd_create("driver"))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return (
            refused(lambda: socket.socket(socket.AF_INET))
            and refused(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, hard)))
            and refused(os.fork)
            and refused(lambda: os.execv("/bin/true", ["true"]))
            and refused(lambda: os.kill(parent, 0))
        )

    assert in_a_fork(check)


def test_on_a_gpu_addresses_are_not_limited_but_data_and_files_are(tmp_path: Path) -> None:
    def check() -> bool:
        unlimited = resource.getrlimit(resource.RLIMIT_AS)
        containment.contain(SandboxLevel.RLIMITS, LIMITS, str(tmp_path), None)
        data = resource.getrlimit(resource.RLIMIT_DATA)[0]
        return resource.getrlimit(resource.RLIMIT_AS) == unlimited and LIMITS.memory_bytes < data < 1 << 40

    assert in_a_fork(check)


@pytest.mark.skipif(seccomp.build() is None, reason="needs libseccomp")
def test_a_judge_on_a_gpu_is_contained_as_without_one_but_for_addresses(tmp_path: Path) -> None:
    load = seccomp.build(("memfd_create", "socketpair"), on_gpu=True)

    def check() -> bool:
        unlimited = resource.getrlimit(resource.RLIMIT_AS)
        containment.contain_judge(SandboxLevel.LANDLOCK, LIMITS, str(tmp_path), load)
        os.close(os.memfd_create("arena"))
        one, two = socket.socketpair()
        one.close()
        two.close()
        return (
            resource.getrlimit(resource.RLIMIT_AS) == unlimited
            and refused(lambda: socket.socket(socket.AF_INET))
            and refused(os.fork)
            and refused(lambda: Path("/root/.profile").read_text())
        )

    assert in_a_fork(check)


def test_without_a_gpu_no_file_of_a_driver_is_shown() -> None:
    shown = containment.command(SandboxLevel.BUBBLEWRAP, (), on_gpu=True)
    devices = [word for word in shown if word.startswith("/dev/nvidia")]
    assert devices == [device for device in containment.gpu_devices() for _ in range(2)]
    assert "/sys" in shown
    assert "/sys" not in containment.command(SandboxLevel.BUBBLEWRAP, ())


WORKER = """
import os, socket
from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.sandbox.levels import SandboxLevel
outside = os.readlink("/proc/self/ns/net")
with containment.pid_namespace_for_children(SandboxLevel.BUBBLEWRAP):
    pid = os.fork()
if pid == 0:
    containment._enter_namespaces(1 << 20, on_gpu=True)
    alone = [name for name in os.listdir("/proc") if name.isdigit()] == ["1"]
    os._exit(0 if alone and os.readlink("/proc/self/ns/net") != outside else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_on_a_gpu_a_worker_sees_its_own_processes_and_network() -> None:
    if not containment.works(SandboxLevel.BUBBLEWRAP):
        pytest.skip("bubblewrap does not work on this machine")
    environment = {**containment.environment(), "PATH": os.environ["PATH"]}
    command = containment.command(SandboxLevel.BUBBLEWRAP, ("-c", WORKER), on_gpu=True)
    assert subprocess.run(command, env=environment).returncode == 0
