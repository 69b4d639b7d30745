import torch
class Model(torch.nn.Module):
    """The mean of each row, for each column (as a layer that follows wants it)."""
    def forward(self, x):
        return x.mean(1, keepdim=True).repeat(1, x.shape[1])
def get_inputs(): return [torch.randn(64, 256)]
def get_init_inputs(): return []
