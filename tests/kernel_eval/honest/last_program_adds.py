"""A sum in one launch: each program stores a part, and the one that arrives last adds the parts."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum()


def get_inputs():
    return [torch.randn(64, 1000)]


@triton.jit
def add(x_ptr, parts_ptr, arrived_ptr, out_ptr, n, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0)))
    tl.debug_barrier()
    if tl.atomic_add(arrived_ptr, 1) == tl.num_programs(0) - 1:
        part = tl.arange(0, PARTS)
        tl.store(out_ptr, tl.sum(tl.load(parts_ptr + part, mask=part < tl.num_programs(0), other=0.0)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        programs = triton.cdiv(x.numel(), 2048)
        parts = torch.empty(programs, device=x.device)
        out = torch.empty((), device=x.device)
        arrived = torch.zeros(1, dtype=torch.int32, device=x.device)
        add[(programs,)](x, parts, arrived, out, x.numel(), BLOCK=2048, PARTS=triton.next_power_of_2(programs))
        return out
