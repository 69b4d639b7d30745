"""Rows in KernelBook's form: what torch 2.5's compiler wrote, with its private names."""

from __future__ import annotations

from typing import Any

_HEAD = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch._inductor.runtime.triton_heuristics import grid
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import math as tl_math
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda

"""
RELU = """
@triton.jit
def triton_poi_fused_relu_0(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xnumel = 250
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + x0, xmask)
    tmp1 = tl.full([1], 0, tl.int32)
    tmp2 = triton_helpers.maximum(tmp1, tmp0)
    tl.store(out_ptr0 + x0, tmp2, xmask)


def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (5, 50), (50, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((5, 50), (50, 1), torch.float32)
        get_raw_stream(0)
        triton_poi_fused_relu_0[grid(250)](arg0_1, buf0, 250, XBLOCK=256, num_warps=4, num_stages=1)
        del arg0_1
    return buf0,


class RectifierNew(nn.Module):

    def forward(self, input_0):
        arg0_1 = input_0
        output = call([arg0_1])
        return output[0]
"""
SCALED_SUM = """
@triton.jit
def triton_per_fused_mul_sum_0(in_ptr0, out_ptr0, scale, xnumel, rnumel, XBLOCK: tl.constexpr):
    xnumel = 20
    RBLOCK: tl.constexpr = 32
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    rindex = tl.arange(0, RBLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (rindex + 32 * xindex), xmask, other=0.0)
    tmp1 = tl_math.abs(tmp0)
    tmp2 = tl.broadcast_to(tmp1, [XBLOCK, RBLOCK])
    tmp3 = tl.where(xmask, tmp2, 0)
    tmp4 = tl.sum(tmp3, 1)[:, None]
    tl.store(out_ptr0 + xindex, tmp4 * scale, xmask)


class ScaledSumNew(nn.Module):

    def __init__(self, width, scale=2.0):
        super(ScaledSumNew, self).__init__()
        self.scale = scale

    def forward(self, input_0):
        buf0 = empty_strided_cuda((20,), (1,), torch.float32)
        stream0 = get_raw_stream(0)
        triton_per_fused_mul_sum_0[grid(20)](input_0, buf0, self.scale, 20, 32, XBLOCK=8, num_warps=2, num_stages=1)
        return buf0
"""


def rows() -> list[dict[str, Any]]:
    """Two right pairs, one of them twice, and one of each kind that is dropped."""
    relu = row("Rectifier", "return torch.relu(x)", RELU, uuid=1)
    scaled = row(
        "ScaledSum",
        "return x.abs().sum(1) * self.scale",
        SCALED_SUM,
        uuid=2,
        constructor="width, scale=2.0",
        inputs="torch.rand([20, 32])",
        init="[[], {'scale': 3.0, 'width': 32}]",
    )
    return [
        relu,
        scaled,
        {**relu, "uuid": 3},
        {**relu, "uuid": 4, "triton_code": _HEAD + RELU.replace("triton_helpers.maximum", "triton_helpers.minimum")},
        {**relu, "uuid": 5, "triton_code": relu["triton_code"].replace("RectifierNew", "SomethingElse")},
        {**row("Rectifier", "return torch.relu(x) * 0", RELU, uuid=6)},
        {**relu, "uuid": 7, "triton_code": relu["triton_code"] + "# word\n" * 2000},
        {**relu, "uuid": 8, "triton_code": _HEAD + RELU.replace("output = call([arg0_1])", "output = [arg0_1.relu()]")},
    ]


def row(
    name: str,
    forward: str,
    triton_code: str,
    *,
    uuid: int,
    constructor: str = "",
    inputs: str = "torch.rand([5, 50]) - 0.5",
    init: str = "[[], {}]",
) -> dict[str, Any]:
    """A row of a class with one constructor and one forward."""
    stored = "        self.scale = scale\n" if "scale" in constructor else ""
    python_code = f"""\
import torch
import torch.nn as nn


class {name}(nn.Module):

    def __init__(self{", " * bool(constructor)}{constructor}):
        super({name}, self).__init__()
{stored}
    def forward(self, x):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return {init}
"""
    return {
        "entry_point": name,
        "python_code": python_code,
        "triton_code": _HEAD + triton_code,
        "uuid": uuid,
        "repo_name": "somebody/something",
        "licenses": ["MIT"],
        "stars": 3,
    }
