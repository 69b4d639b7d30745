import torch


class Model(torch.nn.Module):
    def forward(self, p, g, m, v):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        return p - 0.001 * m / (v.sqrt() + 1e-8)


def get_inputs():
    return [torch.randn(1000), torch.randn(1000), torch.randn(1000) * 0.1, torch.rand(1000) * 0.01]


def get_init_inputs():
    return []
