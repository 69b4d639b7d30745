import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):

    def forward(self, x, y):
        return torch.sqrt(x) * torch.softmax(y.abs(), -1)
def get_inputs():
    return [torch.rand(64,256), torch.rand(64,256)]
def get_init_inputs():
    return []
