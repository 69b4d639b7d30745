import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        d = (x - y).abs()
        return torch.where(d < 900.0, 0.5 * d * d / 900.0, d - 450.0).sum(-1)


def get_inputs():
    return [torch.randn(64, 256), torch.randn(64, 256)]


def get_init_inputs():
    return []
