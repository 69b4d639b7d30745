import torch
import triton
import triton.language as tl


@triton.jit
def embedding(table_ptr, indices_ptr, out_ptr, width, BLOCK: tl.constexpr):
    place = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < width
    row = tl.load(indices_ptr + place)
    tl.store(out_ptr + place * width + offs, tl.load(table_ptr + row * width + offs, mask=mask), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        n, width = indices.numel(), table.shape[1]
        out = torch.empty((n, width), dtype=table.dtype, device=table.device)
        embedding[(n,)](table, indices, out, width, BLOCK=triton.next_power_of_2(width))
        return out
