import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, d):
        missing = d == 0
        s = torch.where(missing, torch.full_like(d, float('inf')), d).sort(-1).values
        n = (~missing).sum(-1, keepdim=True)
        med = s.gather(-1, (n - 1).clamp(min=0) // 2)
        med = torch.where(n > 0, med, torch.zeros_like(med))
        return torch.where(missing, med, d - med)
def get_inputs(): return [torch.rand(64, 128) * 5 + 0.5]
def get_init_inputs(): return []
