import torch
class Model(torch.nn.Module):
    """The bucket of each value by fixed bounds; a value at a bound belongs above it."""
    def __init__(self):
        super().__init__()
        self.register_buffer("bounds", torch.tensor([-1.7, -0.6, 0.35, 1.2]))
    def forward(self, x):
        return torch.bucketize(x, self.bounds, right=True)
def get_inputs(): return [torch.randn(64, 256)]
def get_init_inputs(): return []
