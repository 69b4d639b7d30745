import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(16, 32)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 16)
        for t in range(x.shape[1]):
            z, n = self.w(x[:, t]).chunk(2, -1)
            z = torch.sigmoid(z)
            h = z * h + (1 - z) * torch.tanh(n)
        return h


def get_inputs():
    return [torch.randn(2, 64, 16)]


def get_init_inputs():
    return []
