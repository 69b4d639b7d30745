import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        n = x.norm(dim=-1, keepdim=True)
        u = torch.where(n > 0, x / n, torch.zeros_like(x))
        return torch.topk(u, 1, dim=-1).values
def get_inputs(): return [torch.randn(64, 128)]
def get_init_inputs(): return []
