import torch
class Model(torch.nn.Module):
    """The state of a layer and a copy of it for the next step."""
    def forward(self, x):
        y = torch.nn.functional.gelu(x)
        return y, y.clone()
def get_inputs(): return [torch.randn(64, 256)]
def get_init_inputs(): return []
