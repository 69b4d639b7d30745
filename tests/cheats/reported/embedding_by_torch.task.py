import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(1000, 64)
    def forward(self, i):
        return self.e(i)
M = 128
def get_inputs(): return [torch.randint(0, 1000, (M,))]
def get_init_inputs(): return []
