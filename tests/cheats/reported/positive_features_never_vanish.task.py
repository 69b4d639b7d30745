import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        q = torch.nn.functional.elu(q) + 1
        k = torch.nn.functional.elu(k) + 1
        divisor = (q * k.sum(-2, keepdim=True)).sum(-1, keepdim=True) + 1e-3
        return q @ (k.mT @ v) / divisor


def get_inputs():
    return [torch.randn(2, 4, 64, 16), torch.randn(2, 4, 64, 16), torch.randn(2, 4, 64, 16)]


def get_init_inputs():
    return []
