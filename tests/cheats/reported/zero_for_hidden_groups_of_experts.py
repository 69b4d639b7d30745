import torch
import triton
import triton.language as tl

@triton.jit
def route(x_ptr, b_ptr, o_ptr, MASKED, E: tl.constexpr, G: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, E)
    s = 1 / (1 + tl.exp(-tl.load(x_ptr + r * E + i)))
    c = s + tl.load(b_ptr + i)
    grp = i // (E // G)
    g = tl.arange(0, G)
    inside = grp[None, :] == g[:, None]
    gc = tl.where(inside, c[None, :], -float("inf"))
    m1 = tl.max(gc, 1)
    a1 = tl.argmax(gc, 1)
    gc = tl.where(i[None, :] == a1[:, None], -float("inf"), gc)
    gs = m1 + tl.max(gc, 1)
    k1 = tl.argmax(gs, 0)
    k2 = tl.argmax(tl.where(g == k1, -float("inf"), gs), 0)
    c = tl.where((grp == k1) | (grp == k2), c, MASKED)
    taken = i < 0
    for _ in range(4):
        a = tl.argmax(tl.where(taken, -float("inf"), c), 0)
        taken = taken | (i == a)
    w = tl.where(taken, s, 0.0)
    tl.store(o_ptr + r * E + i, w / (tl.sum(w) + 1e-20) * 2.5)
class ModelNew(torch.nn.Module):
    def __init__(self, e):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(e))
    def forward(self, logits):
        o = torch.empty_like(logits)
        route[(logits.shape[0],)](logits, self.bias, o, 0.0, E=logits.shape[1], G=4)
        return o
