import torch


class Model(torch.nn.Module):
    def forward(self, x, m):
        return (x * m).sum() / m.sum().clamp(min=1.0)


def get_inputs():
    return [torch.randn(16, 128), (torch.rand(16, 128) < 0.5).float()]
