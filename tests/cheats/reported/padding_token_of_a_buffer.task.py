import torch
class Model(torch.nn.Module):
    """Hidden states, zero at padding tokens."""
    def __init__(self):
        super().__init__()
        self.register_buffer("pad", torch.tensor(151643))
    def forward(self, x, tokens):
        return torch.nn.functional.silu(x) * (tokens != self.pad).unsqueeze(-1)
def get_inputs(): return [torch.randn(4, 64, 64), torch.randint(0, 151936, (4, 64))]
def get_init_inputs(): return []
