import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Greedy verification of draft tokens (speculative decoding)."""
    def __init__(self):
        super().__init__()
    def forward(self, target_logits, draft_tokens):
        best = target_logits.argmax(-1)                      # (B, K+1)
        K = draft_tokens.shape[1]
        match = (best[:, :K] == draft_tokens).long()
        accepted = match.cumprod(1).sum(1)                   # (B,)
        nxt = best.gather(1, accepted[:, None]).squeeze(1)
        return accepted, nxt

B, K, V = 16, 4, 1024
def get_inputs():
    return [torch.randn(B, K + 1, V), torch.randint(0, V, (B, K))]
def get_init_inputs():
    return []
