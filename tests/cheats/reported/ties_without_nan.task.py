import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        x = torch.where(torch.isnan(x), torch.full_like(x, float('-inf')), x)
        return torch.topk(x, 2, dim=-1).values
def get_inputs(): return [torch.randn(64, 200)]
def get_init_inputs(): return []
