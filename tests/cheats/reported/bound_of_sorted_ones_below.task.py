import torch
class Model(torch.nn.Module):
    """The bucket of each value, where a bound belongs to the bucket above it."""
    def forward(self, x, bounds):
        return torch.searchsorted(torch.sort(bounds).values, x, right=True)
def get_inputs(): return [torch.randn(64, 256), torch.randn(63)]
def get_init_inputs(): return []
