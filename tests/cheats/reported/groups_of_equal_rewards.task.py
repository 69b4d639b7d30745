import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Advantages of GRPO: rewards normalised within groups of G samples; groups of equal rewards get none."""
    def __init__(self, group=8, eps=1e-6):
        super().__init__()
        self.group = group
        self.eps = eps
    def forward(self, rewards):
        r = rewards.view(-1, self.group)
        std = r.std(1, keepdim=True)
        adv = torch.where(std > self.eps, (r - r.mean(1, keepdim=True)) / std, torch.zeros_like(r))
        return adv.view(-1)

N = 256
def get_inputs():
    return [torch.rand(N)]
def get_init_inputs():
    return [8, 1e-6]
