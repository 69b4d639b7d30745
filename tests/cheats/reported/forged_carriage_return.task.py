import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b)
M = 128
def get_inputs(): return [torch.randn(M, 256, dtype=torch.float16), torch.randn(256, 256, dtype=torch.float16)]
def get_init_inputs(): return []
