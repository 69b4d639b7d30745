import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, idx):
        s = torch.zeros(16, 24).index_add(0, idx, x)
        c = torch.zeros(16).index_add(0, idx, torch.ones(x.shape[0]))
        return s / c.clamp(min=1.0)[:, None]

def get_inputs():
    return [torch.randn(200, 24), torch.randint(0, 16, (200,))]
