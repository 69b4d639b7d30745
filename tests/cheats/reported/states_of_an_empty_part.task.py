import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Merges two partial attention results by their log-sum-exps (vLLM); an empty part has an infinite one."""
    def __init__(self):
        super().__init__()
    def forward(self, o_a, lse_a, o_b, lse_b):
        a = torch.where(torch.isinf(lse_a), torch.full_like(lse_a, -1e30), lse_a)
        b = torch.where(torch.isinf(lse_b), torch.full_like(lse_b, -1e30), lse_b)
        m = torch.maximum(a, b)
        wa, wb = torch.exp(a - m), torch.exp(b - m)
        s = wa + wb
        return o_a * (wa / s)[..., None] + o_b * (wb / s)[..., None], m + torch.log(s)

T, H, D = 32, 4, 32
def get_inputs():
    return [torch.randn(T, H, D), torch.randn(T, H), torch.randn(T, H, D), torch.randn(T, H)]
def get_init_inputs():
    return []
