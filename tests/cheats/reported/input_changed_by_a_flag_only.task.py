import torch
class Model(torch.nn.Module):
    """Adds to an accumulator; empties it afterwards if a flag says so."""
    def forward(self, x, acc, flush):
        y = acc + torch.nn.functional.gelu(x)
        if flush:
            acc.zero_()
        return y
def get_inputs(): return [torch.randn(64, 256), torch.randn(64, 256), False]
def get_init_inputs(): return []
