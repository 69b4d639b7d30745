import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Bad words of two tokens: the second is banned where the first was generated last."""
    def __init__(self):
        super().__init__()
    def forward(self, logits, last_token, bad_words):
        hit = last_token[:, None] == bad_words[None, :, 0]           # (B, N)
        banned = torch.zeros(logits.shape, device=logits.device)
        banned.scatter_add_(1, bad_words[None, :, 1].expand(logits.shape[0], -1), hit.float())
        return logits.masked_fill(banned > 0, -1e9)

B, V, N = 16, 4096, 12
def get_inputs():
    return [torch.randn(B, V), torch.randint(0, V, (B,)), torch.randint(0, V, (N, 2))]
def get_init_inputs():
    return []
