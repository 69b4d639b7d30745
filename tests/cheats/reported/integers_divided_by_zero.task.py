import torch
class Model(torch.nn.Module):
    """The mean of the pixels under a mask, in whole numbers; zero where the mask is empty."""
    def forward(self, x, mask):
        return (x * mask).sum(1) // mask.sum(1).clamp(min=1)
def get_inputs(): return [torch.randint(0, 256, (512, 64)), torch.rand(512, 64) > 0.7]
def get_init_inputs(): return []
