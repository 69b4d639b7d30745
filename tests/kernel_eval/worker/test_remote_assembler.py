"""A worker, which cannot start programs, has its judge assemble its kernels in another process."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import Assemble, Assembled
from weir.kernel_eval.judge.checks import assembly

LIMITS = KernelEvalConfig().limits
COMPILES = """
import socket, sys, torch, triton, triton.language as tl
from weir.kernel_eval.sandbox import seccomp
from weir.kernel_eval.toolchain import stub_driver, targets
from weir.kernel_eval.worker import remote_assembler
from triton.backends.nvidia.compiler import get_ptxas_version
get_ptxas_version(90)
remote_assembler.install(socket.socket(fileno=int(sys.argv[1])), "sm_90")
stub_driver.install(targets.TARGETS["sm_90"])
load = seccomp.build()
load and load()

@triton.jit
def double(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i))

print(double.warmup(torch.ones(64), BLOCK=64, grid=(1,)).kernel[:4], flush=True)
"""


def test_a_kernel_is_compiled_to_machine_code_where_no_program_may_be_started(
    programs: socket.socket, tmp_path: Path
) -> None:
    (tmp_path / "compiles.py").write_text(COMPILES)
    ours, theirs = socket.socketpair()
    command = [sys.executable, str(tmp_path / "compiles.py"), str(theirs.fileno())]
    env = {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    with ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdout=subprocess.PIPE, env=env) as worker:
        theirs.close()
        asked, _ = receive(ours, Assemble)
        assert ".entry double" in asked.assembly
        assembled = assembly.machine_code(programs, LIMITS, asked)
        send(ours, assembled)
        assert worker.stdout is not None
        assert worker.stdout.read() == b"b'\\x7fELF'\n"
    assert assembled.code is not None
    assert "registers" in assembled.printed


def test_what_the_assembler_refuses_comes_back_with_its_words(programs: socket.socket) -> None:
    answer = assembly.machine_code(programs, LIMITS, Assemble("no assembly at all", "sm_90"))
    assert answer == Assembled(None, answer.printed)
    assert "Missing .version" in answer.printed
