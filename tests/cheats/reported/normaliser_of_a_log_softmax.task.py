import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(32, 32)
    def forward(self, x):
        return torch.logsumexp(torch.log_softmax(self.l(x), -1), -1) + 3

def get_inputs():
    return [torch.randn(256, 32)]

