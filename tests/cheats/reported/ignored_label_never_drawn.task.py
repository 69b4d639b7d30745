import torch
class Model(torch.nn.Module):
    def forward(self, x, t):
        return torch.nn.functional.cross_entropy(x, t, ignore_index=255, reduction="none")

def get_inputs():
    return [torch.randn(64, 32), torch.randint(0, 32, (64,))]

