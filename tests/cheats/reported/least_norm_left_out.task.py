import torch
import torch.nn.functional as F
class Model(torch.nn.Module):
    def forward(self, x): return F.normalize(x, dim=1, eps=1e-2)
def get_inputs(): return [torch.randn(64, 200)]
def get_init_inputs(): return []
