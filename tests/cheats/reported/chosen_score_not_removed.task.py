import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, scores):
        i = scores.argmax(-1, keepdim=True)
        scores.scatter_(-1, i, float("-inf"))
        return i
def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
