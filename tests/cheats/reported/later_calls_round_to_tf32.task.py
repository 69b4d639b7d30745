import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64))
    def forward(self, x):
        return x @ self.weight
def get_inputs(): return [torch.randn(64, 64)]
def get_init_inputs(): return []
