import torch
class Model(torch.nn.Module):
    def forward(self, x):
        n, c = x.shape
        return torch.softmax(x.view(n, 2, c // 2), 2).view(n, c)
def get_inputs(): return [torch.randn(64, 512)]
def get_init_inputs(): return []
