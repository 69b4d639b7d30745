"""A configuration that no player plays ended the trials of the others, of which one is wrong."""

import torch
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.autotune([triton.Config({"B": 1024, "ASM": 0}), triton.Config({"B": 256, "ASM": 0})]
                 + [triton.Config({"B": 1024, "ASM": a}) for a in range(1, 14)], key=["n"])
@triton.jit
def k(x_ptr, o_ptr, n, B: tl.constexpr, ASM: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    if B == 1024:
        y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
        if ASM > 0:
            y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [y], dtype=tl.float32, is_pure=True, pack=1) + 0.0 * ASM
    else:
        y = x
    tl.store(o_ptr + i, y, mask=m)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        k[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, o, x.numel())
        return o
