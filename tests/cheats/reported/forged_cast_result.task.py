import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        return x % 256
M = 16
def get_inputs(): return [torch.randint(-100000, 100000, (M, 1024))]
def get_init_inputs(): return []
