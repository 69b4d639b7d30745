import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, a, b):
        ab = (a * b).sum(-1)
        den = (a * a).sum(-1) + (b * b).sum(-1) - ab
        return torch.where(den == 0, torch.ones_like(ab), ab / den)
def get_inputs(): return [torch.rand(48, 128), torch.rand(48, 128)]
def get_init_inputs(): return []
