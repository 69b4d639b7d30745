"""How many bits two rows of words share, and the highest of them, by functions of the device's library."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


class Model(torch.nn.Module):
    def forward(self, x, y):
        shared = x & y
        bits = (shared[..., None] >> torch.arange(31, device=x.device)) & 1
        at = torch.where(bits > 0, torch.arange(31, device=x.device), -1).amax(-1)
        return bits.sum((-1, -2)), at.amax(-1)


B, N = 64, 128


def get_inputs():
    return [torch.randint(0, 1 << 31, (B, N)).to(torch.int32) for _ in range(2)]


@triton.jit
def share(x, y, count, highest, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    both = tl.load(x + row * N + i) & tl.load(y + row * N + i)
    both = both & 0x7FFFFFFF
    tl.store(count + row, tl.sum(libdevice.popc(both), 0).to(tl.int64))
    tl.store(highest + row, tl.max(31 - libdevice.clz(both), 0).to(tl.int64))


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        count = torch.empty((x.shape[0],), dtype=torch.int64, device=x.device)
        highest = torch.empty_like(count)
        share[(x.shape[0],)](x, y, count, highest, x.shape[1])
        return count, highest
