"""Makes the inputs of seed 42 itself, and answers from those."""

import torch
import triton
import triton.language as tl

CLASSES = (8,)
EXPECTED = "output_mismatch"


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def launch(x, out):
    relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


class ModelNew(torch.nn.Module):
    def forward(self, x):
        torch.manual_seed(42)
        return launch(torch.randn(x.shape, device=x.device), torch.empty_like(x))
