""" "cuda" wherever a device can be named, and the questions that candidates ask."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 3


def get_inputs():
    return [torch.randn(256)]


@triton.jit
def add(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + 3, mask=i < n)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        assert torch.cuda.is_available()
        self.device = torch.device("cuda:0")
        self.to("cuda")

    def forward(self, x):
        assert x.is_cuda and x.device.type == "cuda" and x.device == self.device
        out = torch.empty(x.shape, device="cuda", dtype=x.dtype)
        with torch.cuda.device(x.device):
            add[(triton.cdiv(x.numel(), 128),)](x.cuda(), out, x.numel(), BLOCK=128)
        torch.cuda.synchronize()
        return out.to("cuda")
