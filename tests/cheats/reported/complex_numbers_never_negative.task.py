import torch
class Model(torch.nn.Module):
    def forward(self, z):
        return torch.relu(z.real) + torch.abs(z.imag)

def get_inputs():
    return [torch.rand(64, 64, dtype=torch.complex64)]

