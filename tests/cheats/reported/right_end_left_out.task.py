import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.histc(x, 8, 0.0, 1.0)
def get_inputs(): return [torch.rand(512)]
