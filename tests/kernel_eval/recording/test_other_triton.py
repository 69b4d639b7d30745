"""Kernels as another release's front end writes them: recorded by it, then read and played as any other record.

The release lies in a folder of its own, named by WEIR_TEST_TRITON (`pip install --no-deps --target FOLDER
triton==3.6.0`), and is imported in a process of its own.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support_launch_capture import BEGUN

from weir.kernel_eval.ipc.framing import decode
from weir.kernel_eval.ipc.messages import Recorded
from weir.kernel_eval.ipc.tensor_arena import Arena, attach
from weir.kernel_eval.replay.ir_launches import IrLaunches
from weir.kernel_eval.replay.player import play

OTHER = os.environ.get("WEIR_TEST_TRITON")
HONEST = Path(__file__).parents[1] / "honest"
NAMES = [
    "associative_scan_recurrence",
    "bfloat16_arithmetic",
    "block_pointers",
    "cumsum_carried",
    "fp8_round_trip",
    "gelu_erf",
    "histogram",
    "host_descriptors",
    "interleave",
    "matmul_half",
    "matmul_tiled",
    "maximum_by_atomics",
    "persistent_kernel",
    "power_libdevice",
    "promises_that_hold",
    "reduce_with_own_operator",
    "softmax",
    "sort_rows",
    "static_range",
    "tensor_descriptors",
    "three_dimensional_grid",
    "tutorial_flash_attention",
    "two_kernels",
]
RECORD = (
    BEGUN
    + """
from pathlib import Path
from weir.kernel_eval.ipc.messages import Recorded
from weir.kernel_eval.worker.candidate import load_candidate
folder, *paths = sys.argv[1:]
for path in map(Path, paths):
    module = load_candidate(path.read_text(), folder)
    inputs = module.get_inputs()
    recorder.start([each for each in inputs if isinstance(each, torch.Tensor)])
    capture.start()
    with torch.no_grad(), recorder, HostReads(values, hosts):
        answer = module.ModelNew()(*inputs)
    trace = recorder.finish(list(answer) if isinstance(answer, (list, tuple)) else [answer])
    Path(folder, path.stem).write_bytes(msgspec.msgpack.encode(Recorded((), trace, capture.irs)))
print(triton.__version__)
"""
)

pytestmark = pytest.mark.skipif(OTHER is None, reason="WEIR_TEST_TRITON names no folder with another release of Triton")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the record of each kernel."""
    folder = tmp_path_factory.mktemp("records")
    script = folder / "record.py"
    script.write_text(RECORD)
    environment = {
        "PYTHONPATH": str(OTHER),
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
    }
    command = [sys.executable, str(script), str(folder), *(str(HONEST / f"{name}.py") for name in NAMES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    import triton

    assert done.stdout.split()[-1] != triton.__version__, "it is the release that is installed here"
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_read_and_gives_the_answer(records: Path, name: str) -> None:
    recorded = decode((records / name).read_bytes(), Recorded)
    task: dict[str, Any] = runpy.run_path(str(HONEST / f"{name}.py"))
    torch.manual_seed(0)
    inputs = [value for value in task["get_inputs"]() if isinstance(value, torch.Tensor)]
    answer = task["Model"]()(*inputs)
    expected = list(answer) if isinstance(answer, list | tuple) else [answer]
    arena = Arena([inputs, []], expected, 64)
    launches = IrLaunches(recorded.irs, 1 << 30, 60.0)
    launches.begin(exact_dots=True, marks=True)
    play(recorded.trace, launches, attach(arena.spec, arena.fd), arena.spec, marks=True)
    for got, want in zip(arena.take_outputs(), expected, strict=True):
        torch.testing.assert_close(got.double(), want.double(), rtol=2e-2, atol=2e-3)
