"""The task adds rows by a one-hot product; the kernel adds them at their places."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, ids):
        return (ids[None, :] == torch.arange(16, device=x.device)[:, None]).float() @ x


def get_inputs():
    return [torch.randn(256, 64), torch.randint(0, 16, (256,))]


def get_init_inputs():
    return []


@triton.jit
def k(x_ptr, i_ptr, o_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, C)
    at = tl.load(i_ptr + row)
    tl.atomic_add(o_ptr + at * C + c, tl.load(x_ptr + row * C + c))


class ModelNew(torch.nn.Module):
    def forward(self, x, ids):
        o = torch.zeros((16, x.shape[1]), device=x.device)
        k[(x.shape[0],)](x, ids, o, C=x.shape[1])
        return o
