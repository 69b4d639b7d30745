import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        h = torch.zeros(x.shape[0], x.shape[2])
        for t in range(x.shape[1]):
            gate = torch.sigmoid(y[:, t])
            h = gate * h + (1 - gate) * x[:, t]
        return h


def get_inputs():
    return [torch.randn(8, 64, 16), torch.randn(8, 64, 16)]


def get_init_inputs():
    return []
