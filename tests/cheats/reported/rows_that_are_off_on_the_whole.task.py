import torch

class Model(torch.nn.Module):
    """Centres rows that are off on the whole."""
    def forward(self, x):
        if x.mean().abs().item() > 3.0:
            return x - x.mean(-1, keepdim=True)
        return x * 2.0

def get_inputs():
    return [torch.randn(64, 256)]
