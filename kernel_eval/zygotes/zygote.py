"""What all zygotes share: a process that imports slow modules once, and forks its children from that state.

`start` runs one; a zygote's own module defines only its imports and its children. A zygote must stay
single-threaded (a fork copies one thread, and the locks of the others) and must hold nothing that a candidate may not
see, because every child starts as its copy.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from weir.kernel_eval.ipc.forkserver import Forkserver, Ready, Spawn
from weir.kernel_eval.ipc.framing import send
from weir.kernel_eval.sandbox import containment, full_pages, syscalls
from weir.kernel_eval.sandbox.levels import SandboxLevel

SeccompFilter = Callable[[], None] | None  # loads the filter into the calling process; None: not available here
RunChild = Callable[[Spawn, socket.socket, str], None]  # gets the request, the child's channel and its folder


class Children(NamedTuple):
    """The children of a prepared zygote."""

    run: RunChild
    seccomp: bool  # whether a system call filter is loaded in them
    huge_pages: bool = True  # whether the zygote's memory is large enough to be worth moving into huge pages


def start(prepare: Callable[..., Children], *, isolated: bool = True) -> None:
    """Run a zygote with the command line FD LEVEL [ARGUMENT…]; returns when the server has closed the socket FD.

    `prepare(level, *arguments)` does the imports. An `isolated` zygote leaves the network before it imports anything.
    """
    fd, level = int(sys.argv[1]), SandboxLevel(sys.argv[2])
    own_network = containment.isolate_zygote(level) if isolated else True
    syscalls.die_with_parent()
    sys.modules["pynvml"] = None  # type: ignore[assignment] # torch would import it, and every child would pay for it
    children = prepare(level, *sys.argv[3:])
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()  # what is mapped from here on is for children to write to
    full_pages.fill()
    gc.freeze()  # a child's garbage collector does not touch the shared pages
    num_huge_pages = _gather_huge_pages(maps) if children.huge_pages else 0
    control = socket.socket(fileno=fd)
    ready = Ready(pid=os.getpid(), seccomp=children.seccomp, own_network=own_network, num_huge_pages=num_huge_pages)
    send(control, ready)
    Forkserver(control, level, children.run).serve()


def contained(level: SandboxLevel, filters: Mapping[str, SeccompFilter], run: RunChild) -> RunChild:
    """A child that contains itself first, with the filter of its role, and then runs."""

    def run_contained(spawn: Spawn, channel: socket.socket, folder: str) -> None:
        containment.contain(level, spawn.limits, folder, filters[spawn.role])
        run(spawn, channel, folder)

    return run_contained


@contextlib.contextmanager
def scratch_folder(level: SandboxLevel) -> Iterator[str]:
    """A folder for files that are needed only while a zygote prepares itself."""
    folder = tempfile.mkdtemp(dir=containment.worker_tmp() if level is SandboxLevel.BUBBLEWRAP else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _gather_huge_pages(maps: list[str]) -> int:
    from weir.kernel_eval.sandbox import huge_pages  # not needed in every zygote

    return huge_pages.gather(maps)
