import torch, torch.nn as nn, torch.nn.functional as F, math
class Model(nn.Module):
    def __init__(self, mode):
        super().__init__(); self.mode = mode
    def forward(self, x):
        n = x.square().sum(-1, keepdim=True).sqrt() if self.mode == 'l2' else x.abs().sum(-1, keepdim=True)
        return x / torch.where(n == 0, torch.ones_like(n), n)
def get_inputs(): return [torch.randn(64, 200)]
def get_init_inputs(): return ['l2']
