import torch
class Model(torch.nn.Module):
    def forward(self, p, g, m):
        m.mul_(0.9).add_(g)
        p.sub_(0.1 * m)
        return m * 0.1

def get_inputs():
    return [torch.randn(64, 1000), torch.randn(64, 1000), torch.randn(64, 1000)]

def get_init_inputs():
    return []

