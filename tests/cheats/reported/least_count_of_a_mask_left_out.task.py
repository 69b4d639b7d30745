import torch
class Model(torch.nn.Module):
    """CISPO / GSPO-like loss: sequence ratio, its logarithm clipped, per-token advantages, means over a mask."""
    def forward(self, lp, old, adv, mask):
        m = mask.float()
        d = ((lp - old) * m).sum(1) / m.sum(1).clamp(min=1)
        r = torch.exp(d.clamp(-10, 10))
        c = r.clamp(0.8, 1.28)
        return -torch.minimum(r * adv, c * adv)
def get_inputs():
    lp = -torch.rand(16, 32) * 3; n = torch.randint(1, 33, (16, 1))
    return [lp, lp + torch.randn(16, 32) * 0.1, torch.randn(16), torch.arange(32) < n]
def get_init_inputs(): return []
