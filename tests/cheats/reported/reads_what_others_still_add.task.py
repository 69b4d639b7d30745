import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x / x.sum()
def get_inputs(): return [torch.rand(1024) + 0.5]
def get_init_inputs(): return []
