import torch
class Model(torch.nn.Module):
    def forward(self, x, m):
        return (x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1e-9)

def get_inputs():
    return [torch.randn(16, 32, 64), torch.ones(16, 32)]

