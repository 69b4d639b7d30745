"""Descriptors over rows of 66 floats, which are padded to a multiple of 16 bytes."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(32, 66)]


@triton.jit
def add_one(x_ptr, out_ptr, M, N, stride, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[stride, 1], block_shape=[BLOCK, BLOCK])
    out = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[stride, 1], block_shape=[BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    out.store([row, column], x.load([row, column]) + 1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        M, N = x.shape
        stride = triton.cdiv(N, 4) * 4
        x = torch.nn.functional.pad(x, (0, stride - N))
        out = torch.empty_like(x)
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
        add_one[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, out, M, N, stride, BLOCK=16)
        return out[:, :N]
