"""Constants that numpy computed, as module globals with annotations."""

import numpy as np
import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(600)]


INV_SQRT_2: tl.constexpr = tl.constexpr(float(1.0 / np.sqrt(2.0)))
BLOCK_ELEMENTS: int = int(np.power(2, 7))


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: "tl.constexpr"):
    i = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    tl.store(out_ptr + i, 0.5 * x * (1.0 + tl.math.erf(x * INV_SQRT_2)), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        n = np.prod(x.shape).item()
        grid = (int(np.ceil(n / BLOCK_ELEMENTS)),)
        gelu_kernel[grid](x, out, n, BLOCK=BLOCK_ELEMENTS)
        return out
