import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Distillation weighted by how sure the teacher is: inverse entropy."""
    def __init__(self, eps=1e-3):
        super().__init__()
        self.eps = eps
    def forward(self, student, teacher):
        h = -torch.special.xlogy(teacher, teacher).sum(-1)
        ce = -(teacher * F.log_softmax(student, -1)).sum(-1)
        return ce / h.clamp(min=self.eps)

B, C = 32, 64
def get_inputs():
    return [torch.randn(B, C), torch.softmax(torch.randn(B, C) * 2, -1)]
def get_init_inputs():
    return [1e-3]
