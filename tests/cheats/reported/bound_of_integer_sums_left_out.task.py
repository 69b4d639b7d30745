import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):

    def forward(self, x):
        return x.to(torch.int32).sum(-1).clamp(max=20000)
def get_inputs():
    return [torch.randint(0,3,(64,256))]
def get_init_inputs():
    return []
