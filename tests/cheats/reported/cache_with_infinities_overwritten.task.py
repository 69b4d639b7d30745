import torch
class Model(torch.nn.Module):
    """A step of a decoder: scores of the new token go into the cache, which is minus infinity where no token is yet."""
    def forward(self, x, cache):
        cache[:, 64:128] = x * 0.125
        return torch.softmax(cache, 1)
def get_inputs():
    cache = torch.full((32, 256), float("-inf"))
    cache[:, :64] = torch.randn(32, 64)
    return [torch.randn(32, 64), cache]
def get_init_inputs(): return []
