import torch
import triton
import triton.language as tl


@triton.jit
def cumsum(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + row * n + offs, mask=mask, other=0.0)
    tl.store(out_ptr + row * n + offs, tl.cumsum(x, axis=0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, n = x.shape
        out = torch.empty_like(x)
        cumsum[(rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
        return out
