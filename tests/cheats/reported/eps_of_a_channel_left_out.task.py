import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return F.batch_norm(x, None, None, training=True)
def get_inputs(): return [torch.randn(4, 8, 16, 16)]
