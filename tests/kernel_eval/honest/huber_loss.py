"""A Huber loss: partial sums by one kernel, added by a second."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.huber_loss(x, y, delta=0.7)


def get_inputs():
    return [torch.randn(900), torch.randn(900)]


@triton.jit
def partial_sums(x_ptr, y_ptr, part_ptr, n, delta, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    error = tl.abs(tl.load(x_ptr + i, mask=i < n, other=0.0) - tl.load(y_ptr + i, mask=i < n, other=0.0))
    loss = tl.where(error <= delta, 0.5 * error * error, delta * (error - 0.5 * delta))
    tl.store(part_ptr + pid, tl.sum(loss))


@triton.jit
def finish(part_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(part_ptr + i, mask=i < parts, other=0.0)) / n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        n = x.numel()
        parts = triton.cdiv(n, 128)
        part, out = torch.empty(parts, device=x.device), torch.empty((), device=x.device)
        partial_sums[(parts,)](x, y, part, n, 0.7, BLOCK=128)
        finish[(1,)](part, out, parts, n, BLOCK=triton.next_power_of_2(parts))
        return out
