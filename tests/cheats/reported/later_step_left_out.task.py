import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.warmup = 1000
    def forward(self, x, step):
        return x*2 if step < 1000 else x
def get_inputs():
    return [torch.randn(64,128), 10]
def get_init_inputs():
    return []
