import torch
class Model(torch.nn.Module):
    """The least level of each column."""
    def forward(self, x):
        return x.amin(0)
def get_inputs(): return [torch.randint(0, 100, (128, 256), dtype=torch.uint8)]
def get_init_inputs(): return []
