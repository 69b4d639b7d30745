"""A direct convolution of one dimension with a bias, dilated."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 6, 3, dilation=2, padding=2)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 4, 50)]


@triton.jit
def conv1d(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    C,
    L,
    OL,
    K: tl.constexpr,
    DILATION: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    batch, channel = tl.program_id(0), tl.program_id(1)
    position = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32) + tl.load(b_ptr + channel)
    for c in range(C):
        for k in range(K):
            source = position - PAD + k * DILATION
            x = tl.load(x_ptr + (batch * C + c) * L + source, mask=(source >= 0) & (source < L), other=0.0)
            total += x * tl.load(w_ptr + (channel * C + c) * K + k)
    tl.store(out_ptr + (batch * tl.num_programs(1) + channel) * OL + position, total, mask=position < OL)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 6, 3, dilation=2, padding=2)

    def forward(self, x):
        B, C, L = x.shape
        out = torch.empty(B, 6, L, device=x.device)
        grid = (B, 6, triton.cdiv(L, 32))
        conv1d[grid](x, self.conv.weight, self.conv.bias, out, C, L, L, K=3, DILATION=2, PAD=2, BLOCK=32)
        return out
