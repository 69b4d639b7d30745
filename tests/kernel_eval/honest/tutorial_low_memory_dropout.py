"""Dropout with a mask that is an input, as in the first part of Triton's tutorial."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, keep):
        return torch.where(keep, x / (1 - 0.3), 0.0)


def get_inputs():
    return [torch.randn(500), torch.rand(500) > 0.3]


@triton.jit
def _dropout(x_ptr, x_keep_ptr, output_ptr, n_elements, p, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    x_keep = tl.load(x_keep_ptr + offsets, mask=mask)
    output = tl.where(x_keep, x / (1 - p), 0.0)
    tl.store(output_ptr + offsets, output, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x, keep):
        output = torch.empty_like(x)
        assert x.is_contiguous()
        n_elements = x.numel()
        grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)  # noqa: E731
        _dropout[grid](x, keep, output, n_elements, 0.3, BLOCK_SIZE=1024)
        return output
