"""A cumulative sum in one launch: each program waits for the sum up to the one before it."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=0)


def get_inputs():
    return [torch.randn(5000)]


@triton.jit
def scan(x_ptr, sums_ptr, done_ptr, out_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    before = 0.0
    if program > 0:
        while tl.atomic_add(done_ptr + program - 1, 0) == 0:
            pass
        before = tl.load(sums_ptr + program - 1)
    tl.store(sums_ptr + program, before + tl.sum(x))
    tl.debug_barrier()
    tl.atomic_xchg(done_ptr + program, 1)
    tl.store(out_ptr + i, before + tl.cumsum(x, 0), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n = x.numel()
        programs = triton.cdiv(n, 512)
        sums = torch.empty(programs, device=x.device)
        done = torch.zeros(programs, dtype=torch.int32, device=x.device)
        out = torch.empty_like(x)
        scan[(programs,)](x, sums, done, out, n, BLOCK=512)
        return out
