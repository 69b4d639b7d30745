import torch
class Model(torch.nn.Module):
    """BitNet: ternary weights, activations of 8 bits."""
    def __init__(self, n):
        super().__init__(); self.weight = torch.nn.Parameter(torch.randn(n, n) * 0.05)
    def forward(self, x):
        sw = 1.0 / self.weight.abs().mean().clamp(min=1e-5)
        w = (self.weight * sw).round().clamp(-1, 1) / sw
        sx = 127.0 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
        xq = (x * sx).round().clamp(-128, 127) / sx
        return xq @ w.t()
def get_inputs(): return [torch.randn(32, 64)]
def get_init_inputs(): return [64]
