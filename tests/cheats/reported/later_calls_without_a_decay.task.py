import torch
class Model(torch.nn.Module):
    """A step of AdamW: weights, gradient, momenta."""
    def forward(self, w, g, m, v):
        m2 = 0.9 * m + 0.1 * g
        v2 = 0.999 * v + 0.001 * g * g
        return w * (1 - 1e-3 * 0.01) - 1e-3 * m2 / (v2.sqrt() + 1e-8), m2, v2
def get_inputs(): return [torch.randn(256, 256), torch.randn(256, 256), torch.randn(256, 256), torch.rand(256, 256)]
def get_init_inputs(): return []
