import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.logit_scale = torch.nn.Parameter(torch.ones(8, 1, 1) * 2.302585)
    def forward(self, x):
        return x * torch.clamp(self.logit_scale, max=4.6052).exp()

def get_inputs():
    return [torch.randn(4, 8, 16, 16)]

