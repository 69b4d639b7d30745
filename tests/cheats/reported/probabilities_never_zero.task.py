import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):

    def forward(self, x, t):
        return F.kl_div(x, t, reduction='none')
def get_inputs():
    return [torch.log_softmax(torch.randn(64,200),-1), torch.softmax(torch.randn(64,200),-1)]
def get_init_inputs():
    return []
