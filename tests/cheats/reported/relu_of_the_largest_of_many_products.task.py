import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 64)

    def forward(self, x):
        return torch.relu(self.linear(x).amax(-1))


def get_inputs():
    return [torch.randn(32, 16)]


def get_init_inputs():
    return []
