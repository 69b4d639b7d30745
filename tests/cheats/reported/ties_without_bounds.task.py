import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        s = torch.sort(x, dim=-1).values[:, 8:-8]
        return s.clamp(-1000.0, 1000.0).mean(-1)
def get_inputs(): return [torch.randn(64, 128)]
def get_init_inputs(): return []
