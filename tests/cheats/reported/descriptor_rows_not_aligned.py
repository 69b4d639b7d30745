"""relu by tensor descriptors over rows of 66 floats: 264 bytes, no multiple of 16, which no device takes."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "misaligned"

@triton.jit
def k(x, o, M, N, B: tl.constexpr):
    xd = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    od = tl.make_tensor_descriptor(o, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    r, c = tl.program_id(0) * B, tl.program_id(1) * B
    od.store([r, c], tl.maximum(xd.load([r, c]), 0.0))

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
        out = torch.empty_like(x)
        k[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, out, M, N, B=16)
        return out
