"""GPU memory shared between processes: the driver's structures compared with its header, and the memory itself."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton

from weir.kernel_eval.gpu import shared_memory

HEADERS = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
STRUCTURES = {
    "CUmemLocation": shared_memory.Location,
    "CUmemAllocationProp": shared_memory.AllocationProp,
    "CUmemAccessDesc": shared_memory.AccessDesc,
}
NUMBERS = {
    "CU_MEM_ALLOCATION_TYPE_PINNED": shared_memory.PINNED,
    "CU_MEM_LOCATION_TYPE_DEVICE": shared_memory.ON_DEVICE,
    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR": shared_memory.POSIX_FD,
    "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": shared_memory.READ_WRITE,
}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler, which reads the driver's header")
def test_structures_and_numbers_are_those_of_the_drivers_header(tmp_path: Path) -> None:
    lines = ["#include <cuda.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("[\\"{name}\\", %zu]\\n", sizeof({name}));')
        for field, *_ in structure._fields_:
            lines.append(f'printf("[\\"{name}.{field}\\", %zu]\\n", offsetof({name}, {field}));')
    lines += [f'printf("[\\"{name}\\", %d]\\n", (int){name});' for name in NUMBERS]
    (tmp_path / "asks.c").write_text("\n".join([*lines, "return 0; }"]))
    command = ["gcc", f"-I{HEADERS}", str(tmp_path / "asks.c"), "-o", str(tmp_path / "asks")]
    subprocess.run(command, check=True)
    printed = subprocess.run([str(tmp_path / "asks")], capture_output=True, text=True, check=True).stdout
    told = dict(json.loads(line) for line in printed.splitlines())
    ours = {name: ctypes.sizeof(structure) for name, structure in STRUCTURES.items()}
    for name, structure in STRUCTURES.items():
        ours |= {f"{name}.{field}": getattr(structure, field).offset for field, *_ in structure._fields_}
    assert told == ours | NUMBERS


def test_sizes_are_rounded_up_to_what_a_device_gives_out() -> None:
    sizes = [shared_memory.rounded_up(size, 2 << 20) for size in (0, 1, 2 << 20, (2 << 20) + 1)]
    assert sizes == [2 << 20, 2 << 20, 2 << 20, 4 << 20]


@pytest.mark.gpu
def test_what_another_process_writes_is_seen_here() -> None:
    memory = shared_memory.allocate(4096)
    assert memory.fd is not None
    ours = memory.flat(torch.float32, 8, 256)
    ours.fill_(2.0)
    torch.cuda.synchronize()
    adds = (
        "import sys, torch\nfrom weir.kernel_eval.gpu import shared_memory\nfd, size = map(int, sys.argv[1:])\n"
        "memory = shared_memory.attach(fd, size)\nmemory.flat(torch.float32, 8, 256).add_(1.0)\nmemory.close()\n"
    )
    command = [sys.executable, "-c", adds, str(memory.fd), str(memory.size_bytes)]
    subprocess.run(command, pass_fds=(memory.fd,), check=True)
    assert ours.tolist() == [3.0] * 8
    memory.close()
