"""Launches that are captured: their IR, arguments and grid, in a process of its own, since Triton is patched there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support_launch_capture import BEGUN

CAPTURE = (
    BEGUN
    + """
from triton.tools.tensor_descriptor import TensorDescriptor
from weir.kernel_eval.ipc.trace import Descriptor, Place, Plain

@triton.jit
def kernel(x_ptr, block, pair, n, scale, one, none, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = block.load([0, 0])
    tl.store(x_ptr + offsets, tl.load(pair[0] + offsets, mask=offsets < n) * scale + pair[1] + tl.sum(tile) + one)

x = torch.zeros(64, 64)
recorder.start([x])
capture.start()
refused = None
with recorder, HostReads(values, hosts):
    out = torch.empty(64, 64, device="cuda")
    tile = TensorDescriptor(x, [64, 64], [64, 1], [16, 16])
    for block in (64, 64, 128):
        grid = lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)
        kernel[grid](out[1:], tile, (x, 3), 100, 2.5, 1, None, BLOCK=block, num_warps=8)
    try:
        kernel[(1,)](out, tile, (x, 3), 100, 2.5, 1, None, BLOCK=100)
    except launch_capture.KernelRefused as error:
        refused = [error.reason, error.kernel, str(error)]
trace = recorder.finish([out])
print(json.dumps({
    "irs": [[ir.kernel, ir.text, ir.options] for ir in capture.irs],
    "launches": [[each.name, each.ir, each.grid, [repr(a) for a in each.ir_arguments]] for each in trace.launches],
    "refused": refused,
}))
"""
)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path: Path = tmp_path_factory.mktemp("capture") / "capture.py"
    path.write_text(CAPTURE)
    environment = {"TRITON_CACHE_DIR": str(path.parent / "cache"), "HOME": str(path.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_one_ir_is_kept_for_equal_launches(captured: dict[str, Any]) -> None:
    assert [launch[1] for launch in captured["launches"]] == [0, 0, 1]
    assert [launch[2] for launch in captured["launches"]] == [[64], [64], [32]]
    assert len(captured["irs"]) == 2


def test_the_ir_is_text_without_locations_and_comes_with_its_options(captured: dict[str, Any]) -> None:
    name, text, options = captured["irs"][0]
    assert name.startswith("kernel:")
    assert "tt.func public @kernel(" in text
    assert "loc(" not in text
    assert (options["num_warps"], options["num_ctas"], options["debug"]) == (8, 1, False)


def test_constants_are_dropped_and_descriptors_and_tuples_spread(captured: dict[str, Any]) -> None:
    arguments = captured["launches"][0][3]
    kinds = [argument.partition("(")[0] for argument in arguments]
    assert kinds == ["Place", "Descriptor", *["Plain"] * 4, "Place", *["Plain"] * 3]
    assert arguments[0].endswith("shape=(63, 64), stride=(64, 1), offset=64)")
    assert arguments[-3:] == ["Plain(value=3)", "Plain(value=100)", "Plain(value=2.5)"]


def test_a_kernel_that_does_not_compile_is_refused_with_its_name(captured: dict[str, Any]) -> None:
    reason, kernel, message = captured["refused"]
    assert (reason, kernel.split(":")[0]) == ("compiler", "kernel")
    assert "power of 2" in message
