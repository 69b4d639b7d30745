import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(50, 24))
    def forward(self, idx):
        return self.w[idx] * torch.where(idx >= 48, 3.0, 2.0)[:, None]

def get_inputs():
    return [torch.randint(0, 40, (200,))]
