import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)
def get_inputs(): return [torch.randn(64, 256)]
def get_init_inputs(): return []
