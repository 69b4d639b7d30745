import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Distillation: where student and teacher agree on the token the loss is the teacher's surprise, elsewhere cross entropy with soft labels."""
    def __init__(self):
        super().__init__()
    def forward(self, student, teacher):
        ls, lt = F.log_softmax(student, -1), F.log_softmax(teacher, -1)
        agree = student.argmax(-1) == teacher.argmax(-1)
        soft = -(lt.exp() * ls).sum(-1)
        hard = -ls.amax(-1)
        return torch.where(agree, hard, soft)

B, V = 32, 1024
def get_inputs():
    return [torch.randn(B, V), torch.randn(B, V)]
def get_init_inputs():
    return []
