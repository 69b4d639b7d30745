import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + row * n + offs, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    centred = tl.where(mask, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    weight = tl.load(weight_ptr + offs, mask=mask)
    bias = tl.load(bias_ptr + offs, mask=mask)
    tl.store(out_ptr + row * n + offs, centred * scale * weight + bias, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        rows, n = x.shape
        out = torch.empty_like(x)
        layer_norm[(rows,)](x, weight, bias, out, n, self.eps, BLOCK=triton.next_power_of_2(n))
        return out
