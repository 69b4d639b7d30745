import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer('step', torch.zeros((), dtype=torch.long))
    def forward(self, rec, mu, lv):
        self.step += 1
        beta = torch.clamp(self.step.float() / 100.0, max=1.0)
        kl = -0.5 * (1 + lv - mu * mu - lv.exp()).sum(-1)
        return rec + beta * kl
def get_inputs(): return [torch.rand(128), torch.randn(128, 32), torch.randn(128, 32)]
def get_init_inputs(): return []
