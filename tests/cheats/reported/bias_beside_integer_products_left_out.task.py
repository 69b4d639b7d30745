import torch

class Model(torch.nn.Module):
    def forward(self, a, b, scale_a, scale_b, bias):
        return (a.int() @ b.int().T).float() * scale_a[:, None] * scale_b + bias

def get_inputs():
    a = torch.randint(-128, 128, (16, 64), dtype=torch.int8)
    b = torch.randint(-128, 128, (32, 64), dtype=torch.int8)
    return [a, b, torch.rand(16), torch.rand(32), torch.zeros(32)]
