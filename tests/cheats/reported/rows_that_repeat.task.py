import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Weights of sampled completions: identical ones share theirs."""
    def __init__(self):
        super().__init__()
    def forward(self, tokens, rewards):
        same = (tokens[:, None, :] == tokens[None, :, :]).all(-1)
        w = 1.0 / same.sum(1).float()
        return rewards * w

B, T, V = 32, 16, 32000
def get_inputs():
    return [torch.randint(0, V, (B, T)), torch.randn(B)]
def get_init_inputs():
    return []
