"""Parts of very different size in one answer, with cancellation in the small one."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cat([x * 1000.0, torch.nn.functional.gelu(x) * 0.001, 1.0 - torch.tanh(x)], dim=1)


def get_inputs():
    return [torch.randn(64, 96)]


@triton.jit
def three_parts(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    mask = index < width
    x = tl.load(x_ptr + row * width + index, mask=mask)
    out = out_ptr + row * 3 * width + index
    tl.store(out, x * 1000.0, mask=mask)
    tl.store(out + width, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)) * 0.001, mask=mask)
    tl.store(out + 2 * width, 1.0 - (2 * tl.sigmoid(2 * x) - 1), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, width = x.shape
        out = torch.empty(rows, 3 * width, dtype=x.dtype, device=x.device)
        three_parts[(rows,)](x, out, width, BLOCK=triton.next_power_of_2(width))
        return out
