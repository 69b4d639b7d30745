import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Number of targets among the five largest logits (top-5 accuracy), per batch."""
    def __init__(self):
        super().__init__()
    def forward(self, logits, target):
        top = logits.topk(5, dim=-1).indices
        return (top == target[:, None]).any(-1).float().mean()

B, C = 64, 4096
def get_inputs():
    return [torch.randn(B, C), torch.randint(0, C, (B,))]
def get_init_inputs():
    return []
