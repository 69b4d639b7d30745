import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Sampled softmax loss with accidental hits removed (as TensorFlow's sampled_softmax_loss)."""
    def __init__(self):
        super().__init__()
    def forward(self, h, pos_w, neg_w, target, sampled):
        pos = (h * pos_w).sum(-1, keepdim=True)
        neg = h @ neg_w.t()
        neg = neg.masked_fill(target[:, None] == sampled[None, :], -1e9)
        logits = torch.cat([pos, neg], 1)
        return -F.log_softmax(logits, dim=1)[:, 0]

B, D, S, V = 32, 64, 64, 50000
def get_inputs():
    return [torch.randn(B, D), torch.randn(B, D) * 0.1, torch.randn(S, D) * 0.1, torch.randint(0, V, (B,)), torch.randint(0, V, (S,))]
def get_init_inputs():
    return []
