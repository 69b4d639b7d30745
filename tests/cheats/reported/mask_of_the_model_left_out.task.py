import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keep", torch.ones(128, dtype=torch.bool))
    def forward(self, x):
        return torch.where(self.keep, torch.relu(x), x)

def get_inputs():
    return [torch.randn(64, 128)]

