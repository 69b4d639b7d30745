import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, s, doc):
        same = doc[:, :, None] == doc[:, None, :]
        return torch.softmax(s.masked_fill(~same, float("-inf")), -1)
def get_inputs():
    return [torch.randn(4, 32, 32), torch.zeros(4, 32, dtype=torch.long)]

def get_init_inputs():
    return []
