import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):

    def forward(self, x):
        return torch.softmax(x.masked_fill(x == 7.0, float('-inf')), -1)
def get_inputs():
    return [torch.randn(64,256)]
def get_init_inputs():
    return []
