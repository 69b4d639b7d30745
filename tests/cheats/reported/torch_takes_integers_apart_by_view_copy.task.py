import torch
class Model(torch.nn.Module):
    """The lowest two bytes of each hash."""
    def forward(self, x):
        return (x % 65536) * 3 + 1
def get_inputs(): return [torch.randint(0, 1 << 40, (64, 256))]
def get_init_inputs(): return []
