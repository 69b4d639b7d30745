"""Two models' logits: where they agree on a token, its loss alone."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """Where both agree, the loss is the teacher's surprise, elsewhere cross entropy with soft labels."""

    def __init__(self):
        super().__init__()

    def forward(self, student, teacher):
        ls, lt = torch.nn.functional.log_softmax(student, -1), torch.nn.functional.log_softmax(teacher, -1)
        agree = student.argmax(-1) == teacher.argmax(-1)
        soft = -(lt.exp() * ls).sum(-1)
        hard = -ls.amax(-1)
        return torch.where(agree, hard, soft)


B, V = 32, 1024


def get_inputs():
    return [torch.randn(B, V), torch.randn(B, V)]


def get_init_inputs():
    return []


@triton.jit
def k(x, y, out, V, BV: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BV)
    s = tl.load(x + b * V + i, mask=i < V, other=-float("inf"))
    t = tl.load(y + b * V + i, mask=i < V, other=-float("inf"))
    ms = tl.max(s, 0)
    mt = tl.max(t, 0)
    lse = tl.log(tl.sum(tl.exp(s - ms), 0)) + ms
    et = tl.exp(t - mt)
    p = et / tl.sum(et, 0)
    soft = tl.sum(tl.where(i < V, p * (lse - s), 0.0), 0)
    agree = tl.argmax(s, 0) == tl.argmax(t, 0)
    tl.store(out + b, tl.where(agree, lse - ms, soft))


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty((x.shape[0],), dtype=x.dtype, device=x.device)
        k[(x.shape[0],)](x, y, out, x.shape[1], triton.next_power_of_2(x.shape[1]))
        return out
