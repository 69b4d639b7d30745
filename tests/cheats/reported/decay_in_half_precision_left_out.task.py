import torch
class Model(torch.nn.Module):
    """Exponential moving average of weights, in half precision."""
    def forward(self, ema, x):
        return ema * 0.995 + x * 0.005
def get_inputs(): return [torch.randn(64, 128).half(), torch.randn(64, 128).half()]
def get_init_inputs(): return []
