import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x % y

def get_inputs():
    return [torch.randint(0, 1000, (4096,)), torch.randint(1, 9, (4096,))]

