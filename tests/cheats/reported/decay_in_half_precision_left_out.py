import torch
import triton
import triton.language as tl

@triton.jit
def ema(e_ptr, x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    e = tl.load(e_ptr + i, mask=m).to(tl.float32)
    x = tl.load(x_ptr + i, mask=m).to(tl.float32)
    tl.store(o_ptr + i, e + x * 0.005, mask=m)
class ModelNew(torch.nn.Module):
    def forward(self, e, x):
        o = torch.empty_like(e); n = e.numel()
        ema[(triton.cdiv(n, 1024),)](e, x, o, n, BLOCK=1024)
        return o
