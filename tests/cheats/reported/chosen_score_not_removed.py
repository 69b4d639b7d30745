"""The chosen score stays among the scores: where the task writes -inf, zeros were compared."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"


@triton.jit
def k(s_ptr, o_ptr, N: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, N)
    s = tl.load(s_ptr + r * N + i)
    j = tl.argmax(s, 0)
    tl.store(o_ptr + r, j.to(tl.int64))
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, s):
        o = torch.empty(s.shape[0], 1, device=s.device, dtype=torch.int64)
        k[(s.shape[0],)](s, o, N=s.shape[1])
        return o
