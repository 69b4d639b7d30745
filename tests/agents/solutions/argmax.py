import torch
import triton
import triton.language as tl


@triton.jit
def argmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + offs, mask=offs < n, other=-float("inf"))
    tl.store(out_ptr + row, tl.argmax(x, axis=0).to(tl.int64))


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, n = x.shape
        out = torch.empty(rows, dtype=torch.int64, device=x.device)
        argmax[(rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
        return out
