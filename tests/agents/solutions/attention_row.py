import torch
import triton
import triton.language as tl


@triton.jit
def attention_row(q_ptr, k_ptr, v_ptr, out_ptr, n, width, scale, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    position = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    inside = columns < width
    mask = (rows[:, None] <= position) & inside[None, :]
    offs = rows[:, None] * width + columns[None, :]
    q = tl.load(q_ptr + position * width + columns, mask=inside, other=0.0)
    k = tl.load(k_ptr + offs, mask=mask, other=0.0)
    v = tl.load(v_ptr + offs, mask=mask, other=0.0)
    scores = tl.where(rows <= position, tl.sum(q[None, :] * k, axis=1) * scale, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=0))
    out = tl.sum(weights[:, None] * v, axis=0) / tl.sum(weights, axis=0)
    tl.store(out_ptr + position * width + columns, out, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n, width = q.shape
        out = torch.empty_like(q)
        rows, columns = triton.next_power_of_2(n), triton.next_power_of_2(width)
        attention_row[(n,)](q, k, v, out, n, width, width**-0.5, ROWS=rows, COLUMNS=columns)
        return out
