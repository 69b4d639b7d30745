import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, bias=None, act="relu", slope=0.0):
        y = x if bias is None else x + bias
        return F.leaky_relu(y, slope) if act == "relu" else y

def get_inputs():
    return [torch.randn(64, 128), None, "relu", 0.0]
