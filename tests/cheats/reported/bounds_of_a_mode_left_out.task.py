import torch, torch.nn as nn, torch.nn.functional as F, math
class Model(nn.Module):
    def __init__(self, mode):
        super().__init__(); self.mode = mode
    def forward(self, x):
        y = x * 2.0 if self.mode == 'double' else x
        return torch.clamp(y, -1000.0, 1000.0)
def get_inputs(): return [torch.randn(64, 200)]
def get_init_inputs(): return ['double']
