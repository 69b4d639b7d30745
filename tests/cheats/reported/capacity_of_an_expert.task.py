import torch


class Model(torch.nn.Module):
    def forward(self, scores, x):
        return torch.zeros(8, 16).index_add(0, scores.argmax(-1), x)


def get_inputs():
    return [torch.randn(64, 8), torch.randn(64, 16)]


def get_init_inputs():
    return []
