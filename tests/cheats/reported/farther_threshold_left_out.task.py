import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):

    def forward(self, x):
        return torch.softmax(torch.where(x > 1e6, 0.0, x), -1)
def get_inputs():
    return [torch.randn(64,256)]
def get_init_inputs():
    return []
