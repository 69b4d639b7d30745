import torch
class Model(torch.nn.Module):
    """Linear, the mean of the 4 largest of 64 outputs, relu, residual sum."""
    def __init__(self, n, m):
        super().__init__(); self.lin = torch.nn.Linear(n, m)
    def forward(self, x):
        return torch.relu(self.lin(x).topk(4, dim=-1).values.mean(-1, keepdim=True)) + x
def get_inputs(): return [torch.randn(32, 32)]
def get_init_inputs(): return [32, 64]
